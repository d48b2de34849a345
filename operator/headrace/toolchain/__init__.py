"""Finds Java. Downloads jars for it.

``find_java`` finds a Java 17 or 21, and ``jars`` downloads a pinned set of jars. With a
``ClassArchive``, JVMs start faster. ``local_spark`` is the environment of a process that starts
Spark.
"""

from headrace.toolchain.jars import JarSet, jars, missing
from headrace.toolchain.java import ClassArchive, Java, find_java
from headrace.toolchain.spark import local_spark

__all__ = ["ClassArchive", "JarSet", "Java", "find_java", "jars", "local_spark", "missing"]
