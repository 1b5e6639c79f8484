"""`./dev fuzz`: mutated frames."""

import sys

from bench.fuzz.run import main

sys.exit(main())
