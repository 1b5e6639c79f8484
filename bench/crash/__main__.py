"""`./dev crash`: kill -9 under load."""

import sys

from bench.crash.run import main

sys.exit(main())
