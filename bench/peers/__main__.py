"""`./dev bench peers`: Martlet beside other queues."""

import sys

from bench.peers.run import main

sys.exit(main())
