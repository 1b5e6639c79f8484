"""`./dev chaos`: a cluster under faults."""

import sys

from bench.chaos.run import main

sys.exit(main())
