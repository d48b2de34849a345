"""Keys of a run's records in the journal (``headrace.kafka.journal``), and what their values are.

=========================  ==========================================================
``<producer>/progress``    ``{"acknowledged": n, "sent": n, "failed": n}``, twice a second
``probe-<n>/ready``        the consumer is at the end of each of its partitions
``probe-<n>/seen``         what it saw so far (``SequenceCounts``), where the probe serves metrics
``probe-<n>/sentinels``    end sentinels that it received: ``[[topic, partition], ...]``
``end``                    the load is to end, before it has sent all
``topics``                 ``{topic: partitions}`` that steps of chaos added to the load so far
``manifest``               ``LoadManifest``: the load has ended
``measured``               ``Measured``: the probe has ended
``faults``                 ``Faults``: the outcome of each step of chaos so far
``recovered``              ``{}``: the Job of chaos has ended, and watches no recovery any more
``failing-over``           ``{}``: a rehearsal has begun to fail the flow over
``rehearsal``              ``Rehearsed``: the plan, then the outcome of the rehearsal
=========================  ==========================================================
"""

END = "end"
FAILING_OVER = "failing-over"
FAULTS = "faults"
MANIFEST = "manifest"
MEASURED = "measured"
RECOVERED = "recovered"
REHEARSAL = "rehearsal"
TOPICS = "topics"

_PROGRESS, _READY, _SEEN, _SENTINELS = "/progress", "/ready", "/seen", "/sentinels"


def progress(producer: str) -> str:
    """Of a producer's progress."""
    return producer + _PROGRESS


def ready(consumer: str) -> str:
    """Of a consumer of the probe that is in place."""
    return consumer + _READY


def seen(consumer: str) -> str:
    """Of what a consumer of the probe saw so far."""
    return consumer + _SEEN


def sentinels(consumer: str) -> str:
    """Of the end sentinels that a consumer of the probe received."""
    return consumer + _SENTINELS


def is_progress(key: str) -> bool:
    """Whether it is some producer's progress."""
    return key.endswith(_PROGRESS)


def is_ready(key: str) -> bool:
    """Whether some consumer of the probe is in place."""
    return key.endswith(_READY)


def is_seen(key: str) -> bool:
    """Whether it is what some consumer of the probe saw."""
    return key.endswith(_SEEN)


def is_sentinels(key: str) -> bool:
    """Whether it has end sentinels."""
    return key.endswith(_SENTINELS)
