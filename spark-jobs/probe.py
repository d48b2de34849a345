"""spark-submit script: watch the load of a mirror test arrive (headrace_spark.probe)."""

import sys

from headrace_spark.command import probe

if __name__ == "__main__":
    sys.exit(probe())
