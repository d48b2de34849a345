"""The JRE of PyPI runs Spark, which requests a module that it lacks."""

import os
import subprocess
import sys

import pytest
from support.patience import WITHIN_S

from headrace.toolchain.java import packaged_jre

SCRIPT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
jvm = spark.sparkContext._jvm
print(spark.range(3).count(), jvm.java.lang.System.getProperty("java.specification.version"))
"""


@pytest.mark.long
def test_spark_runs_on_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"JAVA_HOME": str(packaged_jre()), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.stdout == "3 21\n", done.stderr
