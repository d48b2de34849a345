"""The compared topics: a load on the source, sent by the load's job, and a copy on the target."""

from dataclasses import dataclass
from pathlib import Path

from bench.mirror.subjects import ending, started

from headrace.api import MirrorTest
from headrace.cli.mirror_test.spark_job import SparkJob
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
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    test = MirrorTest.model_validate(
        {
            "apiVersion": "headrace.dev/v1beta1",
            "kind": "MirrorTest",
            "metadata": {"name": RUN},
            "spec": {
                "source": {"alias": "east", "bootstrapServers": east.bootstrap_servers},
                "target": {"alias": "west", "bootstrapServers": west.bootstrap_servers},
                "targetTopic": "{topic}",
                "load": {
                    "topics": 1,
                    "partitions": _PARTITIONS,
                    "producers": _PRODUCERS,
                    "messages": messages,
                    "messageSizeBytes": MESSAGE_BYTES,
                },
            },
        }
    )
    text = test.model_dump_json(by_alias=True, exclude_none=True)
    (folder / documents.TEST).write_text(text)
    return MirrorTestRun(name=RUN, test=test)


def job(stage: Stage, folder: Path) -> SparkJob:
    """Return a job of the run, as ``headrace verify`` starts it."""
    arguments = ("--test", str(folder / documents.TEST), "--run", RUN, "--out", str(folder))
    return SparkJob(stage, _PRODUCERS, folder, *arguments)


def loaded(folder: Path) -> Load:
    """Send the load; raises ``GaveUp`` when not all of it was acknowledged."""
    producing = job(Stage.PRODUCE, folder)
    while producing.running:
        list(producing.events(1.0))
    words = producing.last_log_error()
    producing.end()
    manifest = documents.read(folder / documents.MANIFEST, LoadManifest)
    if manifest is None or manifest.errors:
        raise GaveUp(words)
    return Load(manifest.acknowledged, (manifest.finished_ms - manifest.started_ms) / 1000)


def copy(run: MirrorTestRun, folder: Path) -> None:
    """Copy every record of the source to the target by a flow, which ends when it is caught up."""
    test = run.test.spec.model_dump(by_alias=True, exclude_unset=True)
    spec = {
        "source": test["source"],
        "target": test["target"],
        "topics": {"include": list(run.topics)},
        "replicationPolicy": {"type": "Identity"},
        "heartbeats": {"enabled": False},
    }
    process = started(RUN, spec, folder, "--until-caught-up")
    with ending(process):
        if process.wait():
            log = (folder / f"{RUN}.log").read_text(errors="replace")
            raise GaveUp(f"not all was copied: {log[-2_000:]}")
