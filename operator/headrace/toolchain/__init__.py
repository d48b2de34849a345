"""Finds Java. Downloads jars for it.

``find_java`` finds a Java 17 or 21, and ``jars`` downloads a pinned set of jars. With a
``ClassArchive``, JVMs start faster. The submodule ``spark`` returns the environment of a process
that starts Spark. The submodule is not imported here, because the build of Spark's image uses this
package without the modules that the submodule needs.
"""

from headrace.toolchain.jars import JarSet, jars, missing
from headrace.toolchain.java import ClassArchive, Java, find_java

__all__ = ["ClassArchive", "JarSet", "Java", "find_java", "jars", "missing"]
