"""spark-submit script: compare both clusters and judge the mirror (headrace_spark.comparison)."""

import sys

from headrace_spark.command import verify

if __name__ == "__main__":
    sys.exit(verify())
