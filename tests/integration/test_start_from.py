"""First offsets by ``startFrom.mode: Latest``, on real brokers."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from support.flows import FlowRun, manifest, spec
from support.progress import progress_records
from support.records import arrived, make_topic, numbered, produce, unique
from support.scenes import WaitUntil

from headrace.sandbox import SandboxCluster


def test_a_clock_ahead_of_the_brokers_does_not_skip_the_start_of_a_new_topic(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: WaitUntil
) -> None:
    word = unique("latest")
    first, old = (make_topic(spec(east), f"{word}-{end}", 1) for end in ("a", "old"))
    for topic in (first, old):
        produce(spec(east), topic, numbered(10, 1))
    more = {"startFrom": {"mode": "Latest"}, "discovery": {"topicsSeconds": 1}}

    def flow(include: str) -> dict[str, object]:
        made = manifest(word, east, west, include, **more)
        ahead = datetime.now(UTC) + timedelta(hours=1)
        made["metadata"]["creationTimestamp"] = ahead.isoformat()
        return made

    with FlowRun(tmp_path, [flow(f"{word}-a.*")]) as run:
        wait_until(run.ready)
        assert run.stop() == 0
    # Records that are there before discovery finds the topic.
    new = make_topic(spec(east), f"{word}-a-new", 2)
    produce(spec(east), new, numbered(100, 2))

    def stored() -> set[str]:
        return {key.topic for key, progress in progress_records(spec(west)) if progress}

    with FlowRun(tmp_path, [flow(f"{word}-.*")]) as run:
        wait_until(lambda: arrived(spec(west), f"east.{new}") == 100)
        wait_until(lambda: old in stored())
        produce(spec(east), old, numbered(5, 1, first=10))
        wait_until(lambda: arrived(spec(west), f"east.{old}") == 5)
        assert "spec.topics selected it later" in run.output
    assert arrived(spec(west), f"east.{first}") == 0
