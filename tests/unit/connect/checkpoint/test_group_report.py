"""Offsets at which groups would resume, for clusters in memory."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.fake_kafka import FakeRecord
from support.source_tasks import P0, P1, TOPIC, Scene

from headrace.api import TopicPartition
from headrace.connect.checkpoint.group_report import (
    EARLIER,
    FOREIGN,
    GONE,
    LATER,
    NOT_COPIED,
    NOT_SET,
    NOT_WRITTEN,
    TOO_OLD,
    WENT_BACK,
    GroupPosition,
    report_groups,
)
from headrace.errors import Fatal
from headrace.replication import APPLIED, Checkpoint, OffsetSync
from headrace.replication import NOT_SET as NOT_SET_HEADER

COPY = TopicPartition("east.orders", 0)
CHECKPOINTS = TopicPartition("east.checkpoints.internal", 0)
PAGE = Path(__file__).parents[4] / "docs/checkpoints.md"
SYNCS = TopicPartition("mm2-offset-syncs.east.internal", 0)


def copy(scene: Scene, records: int) -> None:
    """Copy these records, write their offset syncs, and store progress."""
    scene.start()
    scene.observe()
    scene.check_pool.run()
    scene.source.append(TOPIC, *[b"x"] * records)
    scene.settle()
    for _ in range(4):
        scene.observe()


def checkpoint(scene: Scene, *checkpoints: Checkpoint) -> None:
    scene.target.create_topic(CHECKPOINTS.topic, 1)
    for one in checkpoints:
        scene.target.write(CHECKPOINTS, FakeRecord(one.key(), one.value(), 1))


def sync(scene: Scene, pairs: Iterable[tuple[int, int]]) -> None:
    """Write offset syncs in MirrorMaker 2's format."""
    scene.target.create_topic(SYNCS.topic, 1)
    for pair in pairs:
        one = OffsetSync(*P0, *pair)
        scene.target.write(SYNCS, FakeRecord(one.key(), one.value(), 1))


def positions(scene: Scene) -> tuple[GroupPosition, ...]:
    report = report_groups(scene.context)
    assert report.problems == ()
    return report.positions


def test_what_is_committed_stands_beside_its_checkpoint(scene: Scene) -> None:
    copy(scene, 10)
    scene.source.consumer_commits("billing", P0, 9)
    last = Checkpoint("billing", "east.orders", 0, 4, 4)
    checkpoint(scene, Checkpoint("billing", "east.orders", 0, 2, 2), last)
    (found,) = positions(scene)
    assert found.lag == 5
    assert found == ("billing", P0, 9, last, "", None)


def test_groups_and_topics_of_other_flows_are_not_shown(scene: Scene) -> None:
    copy(scene, 10)
    scene.source.consumer_commits("console-consumer-1", P0, 9)
    scene.source.consumer_commits("billing", TopicPartition("private", 0), 9)
    others = Checkpoint("billing", "east.private", 0, 4, 4), Checkpoint("g", "orders", 0, 4, 4)
    checkpoint(scene, *others, Checkpoint("__g", "east.orders", 0, 4, 4))
    assert positions(scene) == ()


def test_why_there_is_no_checkpoint(scene: Scene) -> None:
    copy(scene, 0)
    sync(scene, [(100, 40)])
    scene.source.consumer_commits("billing", P0, 9)
    scene.source.consumer_commits("late", P0, 100)
    scene.source.consumer_commits("new", TopicPartition(TOPIC, 7), 100)
    notes = {one.group: (one.note, one.lag) for one in positions(scene)}
    assert notes == {
        "billing": (TOO_OLD, None),
        "late": (NOT_WRITTEN, None),
        "new": (NOT_COPIED, None),
    }


def test_why_a_checkpoint_is_earlier_than_it_could_be(scene: Scene) -> None:
    copy(scene, 0)
    sync(scene, [(100, 40), (200, 130)])
    scene.source.consumer_commits("ahead", P1, 7)
    scene.source.consumer_commits("back", P0, 100)
    scene.source.consumer_commits("sparse", P0, 150)
    checkpoint(
        scene,
        Checkpoint("ahead", "east.orders", 1, 7, 0),
        Checkpoint("back", "east.orders", 0, 150, 41),
        Checkpoint("gone", "east.orders", 0, 150, 41),
        Checkpoint("sparse", "east.orders", 0, 150, 41),
    )
    assert {one.group: (one.note, one.lag) for one in positions(scene)} == {
        "ahead": ("ahead of the copy, which ends at source offset 0", 0),
        "back": (WENT_BACK, -50),
        "gone": (GONE, None),
        "sparse": (EARLIER, 0),
    }


def test_without_the_source_there_are_the_checkpoints(scene: Scene) -> None:
    last = Checkpoint("billing", "east.orders", 0, 4, 4)
    checkpoint(scene, last)
    scene.source.away = True
    report = report_groups(scene.context)
    assert report.positions == (("billing", P0, None, last, "", None),)
    assert report.problems == ("no broker of east answered",)


def test_a_group_that_may_not_be_read_is_named(scene: Scene) -> None:
    copy(scene, 10)
    scene.source.consumer_commits("secret", P0, 9)
    scene.source.forbidden.add("secret")
    last = Checkpoint("secret", *COPY, 4, 4)
    checkpoint(scene, last)
    report = report_groups(scene.context)
    assert report.problems == ("may not read secret",)
    assert report.positions == (("secret", P0, None, last, "", None),)


def test_what_groups_of_the_target_hold(scene: Scene) -> None:
    scene.change_spec(checkpoints={"applyToGroups": True})
    copy(scene, 10)
    held = {"back": 8, "foreign": 3, "new": None, "set": 4}
    for group, offset in held.items():
        scene.source.consumer_commits(group, P0, 4)
        if offset is not None:
            scene.target.consumer_commits(group, COPY, offset)
    scene.target.consumer_commits("refused", COPY, 1)
    scene.source.consumer_commits("refused", P0, 4)
    scene.target.forbidden.add("refused")
    checkpoint(scene, *(Checkpoint(group, *COPY, 4, 4) for group in [*held, "refused"]))
    later = Checkpoint("back", *COPY, 4, 4)
    headers = {APPLIED: b"8", NOT_SET_HEADER: b""}
    scene.target.write(CHECKPOINTS, FakeRecord(later.key(), later.value(), 1, headers))
    report = report_groups(scene.context)
    assert report.problems == ("may not read refused",)
    assert {one.group: (one.held, one.note) for one in report.positions} == {
        "back": (8, LATER),
        "foreign": (3, FOREIGN),
        "new": (None, NOT_SET),
        "set": (4, ""),
        "refused": (None, ""),
    }


def test_share_groups_and_streams_groups_are_named(scene: Scene) -> None:
    copy(scene, 10)
    scene.source.consumer_commits("billing", P0, 4)
    scene.source.consumer_commits("prices", P0, 4)
    scene.source.consumer_commits("private", TopicPartition("private", 0), 4)
    scene.source.kinds = {
        "console-consumer-1": "share",
        "orders-share": "share",
        "prices": "streams",
        "private": "streams",
        "starts": "streams",
    }
    report = report_groups(scene.context)
    assert [one.group for one in report.positions] == ["billing"]
    assert [one[:2] for one in report.untranslated] == [
        ("orders-share", "share"),
        ("prices", "streams"),
        ("starts", "streams"),
    ]
    page = " ".join(PAGE.read_text().split())
    for one in report.untranslated:
        shown = one._replace(group="NAME", why="REASON" if one.why else "")
        assert shown.sentence in page


def test_when_they_cannot_be_listed_the_others_are_shown(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy(scene, 10)
    scene.source.consumer_commits("billing", P0, 4)

    def too_old() -> dict[str, str]:
        raise Fatal("east is too old")

    monkeypatch.setattr(scene.source, "protocol_types", too_old)
    report = report_groups(scene.context)
    assert [one.group for one in report.positions] == ["billing"]
    assert (report.untranslated, report.problems) == ((), ("east is too old",))


NOTES = [EARLIER, FOREIGN, GONE, LATER, NOT_COPIED, NOT_SET, NOT_WRITTEN, TOO_OLD, WENT_BACK]


@pytest.mark.parametrize("note", NOTES)
def test_the_page_explains_each_note(note: str) -> None:
    begins = note if note in (FOREIGN, LATER) else re.split("[:;,]", note)[0]
    assert f"| {begins} |" in PAGE.read_text()


def test_nothing_is_made(scene: Scene) -> None:
    scene.source.consumer_commits("billing", P0, 9)
    before = set(scene.target.ids)
    assert positions(scene) == (("billing", P0, 9, None, NOT_COPIED, None),)
    assert set(scene.target.ids) == before
