"""Spark on this machine: the environment of a process that starts it."""

import os
import shlex
import sys
from pathlib import Path

from headrace import logs
from headrace.toolchain.jars import JarSet, fetched, pinned, pyspark_jars
from headrace.toolchain.java import Java, find_java


def local_spark(slots: int, heap_mib: int, java_options: str, scratch: Path) -> dict[str, str]:
    """Return the environment of a process that starts Spark in local mode.

    It selects the Spark, the jars and the Python of this installation, even if another Spark is
    installed. Raise ``Fatal`` if Java or a jar is not available.

    Args:
        slots: Tasks that can run at the same time.
        heap_mib: Heap of the JVM in MiB.
        java_options: Further options of the JVM.
        scratch: Folder for temporary files of Spark.
    """
    java = find_java()
    others = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
    }
    if logs.is_json():
        settings["spark.log.structuredLogging.enabled"] = "true"
        others[logs.FORMAT_VARIABLE] = "json"
    arguments = [
        *("--master", f"local[{slots}]"),
        *("--driver-memory", f"{heap_mib}m"),
        *("--driver-java-options", java_options),
        *(("--jars", ",".join(map(str, added))) if (added := _kafka_jars(java)) else ()),
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        "pyspark-shell",
    ]
    return others | {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": shlex.join(arguments),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _kafka_jars(java: Java) -> tuple[Path, ...]:
    """Return the jars for Kafka that PySpark lacks: none in the image headrace-spark."""
    own = pyspark_jars() or Path()
    lacking = [j for j in pinned(JarSet.SPARK_KAFKA) if not j.is_at(own / j.file_name)]
    return fetched(lacking, java)
