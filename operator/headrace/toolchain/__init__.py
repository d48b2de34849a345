"""Finds Java. Downloads jars for it.

``find_java`` finds a Java 17 or 21, and ``jars`` downloads a pinned set of jars. With a
``ClassArchive``, JVMs start faster. ``spark`` has the environment of a process that starts Spark.
The build of Spark's image uses this package without the modules that ``spark`` needs. Therefore
``spark`` is not imported here.
"""

from headrace.toolchain.jars import JarSet, jars, missing
from headrace.toolchain.java import ClassArchive, Java, find_java

__all__ = ["ClassArchive", "JarSet", "Java", "find_java", "jars", "missing"]
