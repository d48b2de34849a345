"""The jobs of a mirror test, wherever they run, and what the Spark driver of each needs."""

from enum import StrEnum


class Stage(StrEnum):
    """In the order in which they start."""

    PROBE = "probe"
    CHAOS = "chaos"
    """No Spark job: in pods only, and only where ``spec.chaos`` is set."""
    PRODUCE = "produce"
    VERIFY = "verify"


HEAP_MIB = {Stage.PROBE: 512, Stage.PRODUCE: 512, Stage.VERIFY: 1_536}
"""Memory of the JVM; Python's workers come on top."""

# A collector with threads of its own comes to nothing in a minute's life. Nor does the optimizing
# compiler where Python does the work: without it Spark's start costs 40 % less (10 core-seconds).
# The verifier's work is the JVM's own: it would take three times as long.
_SERIAL = "-XX:+UseSerialGC"
JAVA_OPTIONS = {
    Stage.PROBE: f"{_SERIAL} -XX:TieredStopAtLevel=1",
    Stage.PRODUCE: f"{_SERIAL} -XX:TieredStopAtLevel=1",
    Stage.VERIFY: _SERIAL,
}


def local_slots(stage: Stage, producers: int) -> int:
    """Tasks at the same time where all of them run in the Spark driver's process; each producer
    and each of as many consumers needs one for the whole load."""
    return 2 if stage is Stage.VERIFY else producers
