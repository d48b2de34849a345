"""The stages of a mirror test, wherever they run, and what the Spark driver of each needs."""

from enum import StrEnum
from math import ceil

from headrace.api import Load, MirrorTest


class Stage(StrEnum):
    """In the order in which they start."""

    PROBE = "probe"
    CHAOS = "chaos"
    """Only where ``spec.chaos`` is set. No Spark job: in a cluster a Job of its own, on one machine
    part of ``headrace verify``."""
    REHEARSAL = "rehearsal"
    """Only where ``spec.rehearsal`` is set, and as chaos."""
    PRODUCE = "produce"
    VERIFY = "verify"


_DEADLINE_S = 3_600
"""Beyond the times of the load and of the settling: a stage that takes an hour more is stuck. (What
a comparison takes is in docs/benchmarks.md.)"""

HEAP_MIB = {Stage.PROBE: 512, Stage.PRODUCE: 512, Stage.VERIFY: 1_536}
"""Memory of the JVM; Python's workers come on top."""

# A collector with threads of its own does not pay off in a process of a minute. Nor does the
# optimizing compiler where Python does the work: without it Spark's start costs 40 % less (10
# core-seconds). The verifier's work is the JVM's own: without it that takes three times as long.
# What Spark generates for a record is one method of 9 KB, and Java interprets all above 8 KB
# by default: that takes two and a half times as long.
_SERIAL = "-XX:+UseSerialGC"
JAVA_OPTIONS = {
    Stage.PROBE: f"{_SERIAL} -XX:TieredStopAtLevel=1",
    Stage.PRODUCE: f"{_SERIAL} -XX:TieredStopAtLevel=1",
    Stage.VERIFY: f"{_SERIAL} -XX:-DontCompileHugeMethods",
}


def local_slots(stage: Stage, producers: int) -> int:
    """Tasks at the same time where all of them run in the Spark driver's process; each producer
    and each of as many consumers needs one for the whole load."""
    return 2 if stage is Stage.VERIFY else producers


def assumed_per_second(load: Load) -> int:
    """Messages, of all topics: what the load asks for, else what any cluster takes."""
    topics = len(load.names or ()) or load.topics or 1
    return topics * (load.messages_per_second or 1_000)


def deadline_s(test: MirrorTest, stage: Stage) -> int:
    """The time limit of a stage, in seconds from its start."""
    load, settle_s = test.spec.load, test.spec.settle_seconds
    if load.duration_seconds is not None:
        load_s = load.duration_seconds
    else:
        load_s = ceil((load.messages or 0) / assumed_per_second(load))
    return _DEADLINE_S + (settle_s if stage is Stage.VERIFY else load_s + settle_s)
