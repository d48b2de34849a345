"""Java with its jars, found or fetched.

``find_java`` finds a Java 17 or 21, ``jars`` fetches a pinned set of jars, and with a
``ClassArchive`` JVMs start sooner.
"""

from headrace.toolchain.jars import JarSet, jars, missing
from headrace.toolchain.java import ClassArchive, Java, find_java

__all__ = ["ClassArchive", "JarSet", "Java", "find_java", "jars", "missing"]
