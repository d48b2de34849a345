"""spark-submit script: send the load of a mirror test (headrace_spark.producer)."""

import sys

from headrace_spark.command import produce

if __name__ == "__main__":
    sys.exit(produce())
