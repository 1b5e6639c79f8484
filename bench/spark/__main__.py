"""`./dev bench spark`: Spark's figures."""

import sys

from bench.spark.run import main

sys.exit(main())
