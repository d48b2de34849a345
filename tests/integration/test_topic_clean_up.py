"""Topics of a mirror test's run are deleted by their ids; real brokers."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.flows import spec
from support.records import make_topic, unique

from headrace.api import MirrorTest
from headrace.cli.mirror_test.clean_up import command
from headrace.kafka import Admin
from headrace.mirror_test import MirrorTestRun, documents
from headrace.sandbox import SandboxCluster
from headrace_spark import messages

RUN = "261128-160000-5d1f"


def prepared(
    east: SandboxCluster, west: SandboxCluster, folder: Path, **load: Any
) -> MirrorTestRun:
    """Return a run whose topics exist on the source, and write its test into ``folder``."""
    test = MirrorTest.model_validate(
        {
            "metadata": {"name": unique("nightly")},
            "spec": {
                "source": {"alias": "east", "bootstrapServers": east.bootstrap_servers},
                "target": {"alias": "west", "bootstrapServers": west.bootstrap_servers},
                "load": {"partitions": 1, **load},
            },
        }
    )
    run = MirrorTestRun(name=RUN, test=test)
    messages.prepare(run)
    (folder / documents.TEST).write_text(test.model_dump_json(by_alias=True, exclude_none=True))
    return run


def clean_up(folder: Path) -> None:
    arguments = [f"--test={folder / documents.TEST}", f"--topics={folder / documents.TOPICS}"]
    done = CliRunner().invoke(
        command, [*arguments, f"--run={RUN}", "--notice-seconds=0"], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("reported", [True, False], ids=["by the report", "by the journal"])
def test_topics_that_a_run_created_are_deleted_with_their_copies(
    reported: bool, east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: Any
) -> None:
    run = prepared(east, west, tmp_path, topics=2)
    for copy in run.topics.values():
        make_topic(spec(west), copy, 1)
    if reported:
        documents.write(tmp_path / documents.TOPICS, messages.created_topics(run))
    clean_up(tmp_path)
    wait_until(lambda: not run.topics.keys() & Admin(run.source).topics().keys())
    wait_until(lambda: not set(run.topics.values()) & Admin(run.target).topics().keys())


def test_topics_with_other_ids_and_earlier_topics_stay(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path, wait_until: Any
) -> None:
    run = prepared(east, west, tmp_path, topics=1)
    ((topic, copy),) = run.topics.items()
    make_topic(spec(west), copy, 1)
    documents.write(tmp_path / documents.TOPICS, messages.created_topics(run))
    for admin, name in ((Admin(run.source), topic), (Admin(run.target), copy)):
        admin.delete_topic(name)
        wait_until(lambda admin=admin, name=name: name not in admin.topics())
        make_topic(spec(east if name == topic else west), name, 1)
    clean_up(tmp_path)
    assert topic in Admin(run.source).topics()
    assert copy in Admin(run.target).topics()


def test_topics_that_the_load_names_stay(
    east: SandboxCluster, west: SandboxCluster, tmp_path: Path
) -> None:
    name = unique("named")
    run = prepared(east, west, tmp_path, names=[name])
    clean_up(tmp_path)
    assert name in Admin(run.source).topics()
