"""In what a load differs from the one that the test describes: the manifest's warnings."""

from collections.abc import Sequence

from headrace.api import MessageFormat
from headrace.mirror_test import Run
from headrace_spark import messages
from headrace_spark.sent_streams import Report
from headrace_spark.topics import LoadTopic


def warnings_of(
    run: Run, load_topics: tuple[LoadTopic, ...], reports: Sequence[Report]
) -> tuple[str, ...]:
    """All of them; ``reports``: of all producers."""
    return (*_unlike(run, load_topics), *_nameless(run), *_ended(run, reports))


def _unlike(run: Run, load_topics: tuple[LoadTopic, ...]) -> tuple[str, ...]:
    """Topics that were there already, with another number of partitions than asked for."""
    wanted = run.test.spec.load.partitions
    return tuple(
        f"topic {t.name} was there with {t.partitions} partitions, not {wanted}"
        for t in load_topics
        if t.partitions != wanted
    )


def _nameless(run: Run) -> tuple[str, ...]:
    """That messages are too small to name their topic."""
    load = run.test.spec.load
    names = [t for t in run.topics if not messages.has_room(t, load.message_size_bytes)]
    if load.message_format is not MessageFormat.BODY or len(run.topics) < 2 or not names:
        return ()
    return (
        f"messages of {load.message_size_bytes} bytes have no room for the name of their topic "
        f"({', '.join(names[:3])}): if the mirror exchanged those of two topics, equal ones "
        "would not be seen",
    )


def _ended(run: Run, reports: Sequence[Report]) -> tuple[str, ...]:
    """That somebody ended the load, where it would have sent more."""
    if run.test.spec.load.is_endless or not any(report.was_ended for report in reports):
        return ()
    sent = sum(stream.sent for report in reports for stream in report.streams)
    planned = run.test.spec.load.messages
    of = f"{planned:,} messages" if planned else f"{run.test.spec.load.duration_seconds} s of load"
    return (f"the load was ended early, as somebody asked: {sent:,} messages were sent, of {of}",)
