"""One Spark session for every test of this folder: starting one takes eight seconds."""

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headrace.mirror_test import JAVA_OPTIONS, Stage
from headrace.toolchain import JarSet, find_java, jars


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(map(str, jars(JarSet.SPARK_KAFKA, java))))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS[Stage.PRODUCE])
        .config("spark.sql.session.timeZone", "UTC")
        # A handful of rows: compiling a plan would take longer than interpreting it.
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.default.parallelism", "1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .getOrCreate()
    )
    yield session
    session.stop()
