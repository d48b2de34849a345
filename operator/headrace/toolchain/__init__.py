"""What a JVM needs before it starts: Java and jars, found or fetched, each checked.

``find_java`` finds a Java 17 or 21, ``jars`` fetches a pinned set of jars, ``spawn`` starts a child
that dies with us. Files go to ``cache_home()`` and ``state_home()``.
"""

from headrace.toolchain.folders import cache_home, state_home
from headrace.toolchain.jars import JarSet, jars, missing
from headrace.toolchain.java import Java, find_java
from headrace.toolchain.leash import spawn

__all__ = ["JarSet", "Java", "cache_home", "find_java", "jars", "missing", "spawn", "state_home"]
