"""The compared topics: a load on the source, sent by the load's job, and a copy on the target."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.mirror.subjects import ending, started
from bench.spark_jobs import mirror_test_job, write_test

from headrace.api import MirrorTest
from headrace.errors import GaveUp
from headrace.mirror_test import LoadManifest, MirrorTestRun, Stage, documents
from headrace.sandbox import Sandbox

RUN = "bench"
MESSAGE_BYTES = 100
_PARTITIONS = 8
_PRODUCERS = 2


@dataclass(frozen=True)
class Load:
    """Messages of a load, and the time from the first message to the last acknowledgement."""

    messages: int
    seconds: float


def described(sandbox: Sandbox, folder: Path, messages: int) -> MirrorTestRun:
    """Return the run, and write its test to the folder for the jobs."""
    load = {
        "topics": 1,
        "partitions": _PARTITIONS,
        "producers": _PRODUCERS,
        "messages": messages,
        "messageSizeBytes": MESSAGE_BYTES,
    }
    test = mirror_test(sandbox, load=load)
    write_test(test, folder)
    return MirrorTestRun(name=RUN, test=test)


def mirror_test(sandbox: Sandbox, **more: object) -> MirrorTest:
    """Return a test of a mirror from east to west that keeps the names of topics."""
    sides = {
        side: {
            "alias": alias,
            "bootstrapServers": sandbox.cluster(alias).bootstrap_servers,
        }
        for side, alias in (("source", "east"), ("target", "west"))
    }
    return MirrorTest.model_validate(
        {
            "apiVersion": "headrace.dev/v1beta1",
            "kind": "MirrorTest",
            "metadata": {"name": RUN},
            "spec": {**sides, "targetTopic": "{topic}", **more},
        }
    )


def loaded(folder: Path) -> Load:
    """Send the load; raises ``GaveUp`` when not all of it was acknowledged."""
    producing = mirror_test_job(Stage.PRODUCE, RUN, folder, _PRODUCERS)
    while producing.running:
        list(producing.events(1.0))
    words = producing.last_log_error()
    producing.end()
    manifest = documents.read(folder / documents.MANIFEST, LoadManifest)
    if manifest is None or manifest.errors:
        raise GaveUp(words)
    return Load(manifest.acknowledged, (manifest.finished_ms - manifest.started_ms) / 1000)


def copy(test: MirrorTest, topics: Iterable[str], folder: Path) -> None:
    """Copy the records of the source that the target lacks, by a flow that ends afterwards."""
    fields = test.spec.model_dump(by_alias=True, exclude_unset=True)
    spec = {
        "source": fields["source"],
        "target": fields["target"],
        "topics": {"include": list(topics)},
        "replicationPolicy": {"type": "Identity"},
        "heartbeats": {"enabled": False},
    }
    process = started(RUN, spec, folder, "--until-caught-up")
    with ending(process):
        if process.wait():
            log = (folder / f"{RUN}.log").read_text(errors="replace")
            raise GaveUp(f"not all was copied: {log[-2_000:]}")
