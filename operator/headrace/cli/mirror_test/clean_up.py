"""``headrace test clean-up``: Job of a mirror test that deletes the topics of a run."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from headrace import logs
from headrace.api import load
from headrace.errors import GaveUp, HeadraceError
from headrace.kafka import Admin, journal
from headrace.logs import get_logger
from headrace.mirror_test import CreatedTopics, MirrorTestRun, created_in, documents

log = get_logger(__name__)

_PATH: Any = click.Path(path_type=Path)


@click.command(hidden=True)
@click.option(
    "--test", type=_PATH, metavar="FILE", required=True, help="File of the resolved test."
)
@click.option(
    "--topics", type=_PATH, metavar="FILE", required=True, help="File of the created topics."
)
@click.option("--run", "name", metavar="RUN", required=True, help="Name of the run.")
@click.option("--secrets", type=_PATH, metavar="DIR", help="Folder of Secrets.")
@click.option(
    "--notice-seconds",
    type=float,
    metavar="SECONDS",
    default=30.0,
    help="Time for the mirror to notice that the source topics are deleted.",
)
def command(
    test: Path, topics: Path, name: str, secrets: Path | None, notice_seconds: float
) -> None:
    """Delete the topics that a run of a mirror test created, and their copies.

    Topics are deleted by their ids: a topic that was created again with the same name stays. The
    source topics are deleted first, because a mirror would create a missing copy again.
    """
    logs.configure()
    (found,) = load([test]).tests
    run = MirrorTestRun(name=name, test=found, secrets=secrets)
    source, target = Admin(run.source), Admin(run.target)
    created = _created(run, topics, target)
    failed = source.delete_topics_by_id({one.name: one.topic_id for one in created.topics})
    copies = {
        one.copy_name: one.copy_id
        for one in created.topics
        if one.name not in failed and one.copy_name and one.copy_id
    }
    if copies:
        time.sleep(notice_seconds)  # a mirror does not report that it has noticed a deletion
    failed |= target.delete_topics_by_id(copies)
    log.info("deleted", run=name, topics=len(created.topics), copies=len(copies))
    _raise(failed)


def _created(run: MirrorTestRun, topics: Path, target: Admin) -> CreatedTopics:
    """Return the topics that the verifier stored, or otherwise the topics in the journal.

    If no id is known for a copy, the copy did not exist before the run. Its present id is added,
    because the mirror created that topic for a source topic of this run.
    """
    created = documents.read(topics, CreatedTopics)
    if created is None:
        created = created_in(journal.read_all(run.source, run.name))
    ids = {name: one.topic_id for name, one in target.describe(created.copies).items()}
    return created.with_copies(ids)


def _raise(failed: Mapping[str, HeadraceError]) -> None:
    if failed:
        first = next(iter(failed.values()))
        raise GaveUp(f"{len(failed)} topics are not deleted: {first}")
