"""``headrace failover`` for a run without drivers, with brokers in memory.

Nothing here can fence the mover's writers: tests/integration/test_fail_over.py has the fence.
"""

import json
from collections.abc import Callable, Mapping, Set
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from support.fake_kafka import FakeRecord
from support.source_tasks import COPY, P0, P1, TOPIC, Scene

from headrace.api import (
    FlowState,
    LossAction,
    LossCause,
    Reason,
    ReplicationFlow,
    TaskPhase,
    TopicPartition,
)
from headrace.cli.flow import flow_access
from headrace.cli.flow.failover_report import group_entries
from headrace.cli.flow.flow_verbs import LocalFlows
from headrace.connect.checkpoint.checkpoint_log import CheckpointLog
from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.connect.checkpoint.group_report import EARLIER
from headrace.connect.failover.survey import deny_writes
from headrace.connect.runtime.context import FlowContext
from headrace.connect.runtime.offset_sync_writer import ensure_offset_syncs_topic
from headrace.datapath import Before, Closed
from headrace.errors import Fatal, NotRunning, Retriable
from headrace.kafka import Committed, GroupActive
from headrace.replication import (
    Checkpoint,
    Loss,
    OwnerProducer,
    Precision,
    StoredCheckpoint,
    write_denial,
)
from headrace.standalone import StandaloneHerder

pytestmark = pytest.mark.usefixtures("meanwhile")
Say = Callable[..., str]


@pytest.fixture(autouse=True)
def copied(herder: StandaloneHerder, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy ten records, of which a group has read nine."""

    def context(flow: ReplicationFlow, *_: object, **__: object) -> FlowContext:
        scene.context.change(flow)
        return scene.context

    monkeypatch.setattr(flow_access, "FlowContext", context)
    monkeypatch.setattr(scene.context, "close", lambda: None)  # the task continues with it
    scene.start()
    scene.observe()
    scene.check_pool.run()
    scene.source.append(TOPIC, *[b"x"] * 10)
    scene.settle()
    for _ in range(4):
        scene.observe()
    scene.source.consumer_commits("billing", P0, 9)


def state(herder: StandaloneHerder) -> FlowState:
    return herder.flow("f").spec.state


def test_it_stops_the_flow_and_says_where_groups_go_on(
    say: Say, scene: Scene, herder: StandaloneHerder
) -> None:
    found = json.loads(say("failover", "f", "-o", "json"))
    assert state(herder) is FlowState.STOPPED
    one, _ = found["partitions"]
    assert (one["sourceEnd"], one["copiedTo"], one["notCopied"], one["targetEnd"]) == (
        10,
        10,
        0,
        10,
    )
    assert one["unfenced"] == [-1]
    assert [(g["group"], g["targetOffset"], g["exact"]) for g in found["groups"]] == [
        ("billing", 9, True)
    ]
    copy = TopicPartition(COPY, 0)
    assert scene.target.committed(["billing"])[0]["billing"][copy].offset == 9
    switch = scene.stored(P0).switch
    assert switch is not None

    scene.source.append(TOPIC, b"late")
    assert json.loads(say("failover", "f", "-o", "json"))["partitions"][0]["sourceEnd"] == 10, (
        "it stays"
    )
    assert scene.stored(P0).switch == switch


def watched(herder: StandaloneHerder) -> bool:
    return herder.flow("f").spec.source_watch.enabled


@pytest.mark.parametrize("option", ["--end-watch", "--abort"])
def test_a_planned_fail_over_begins_a_watch_of_the_source(
    say: Say, herder: StandaloneHerder, option: str
) -> None:
    said = say("failover", "f")
    assert "A driver watches the source" in said
    assert watched(herder)
    assert [t.metadata.name for t in herder.tasks("f")][-1] == "f-source-watch-0"
    say("failover", "f", option)
    assert not watched(herder)
    assert "f-source-watch-0" not in [t.metadata.name for t in herder.tasks("f")]


def test_groups_that_return_to_the_source_end_its_watch(say: Say, herder: StandaloneHerder) -> None:
    say("failover", "f")
    say("flow", "reverse", "f", "--dry-run")
    assert watched(herder)
    say("flow", "reverse", "f")
    assert not watched(herder)


def test_a_disaster_begins_no_watch_of_the_source(say: Say, herder: StandaloneHerder) -> None:
    assert "watches the source" not in say("failover", "f", "--source-is-gone")
    assert not watched(herder)


def test_a_dry_run_changes_nothing(say: Say, scene: Scene, herder: StandaloneHerder) -> None:
    before = scene.stored(P0)
    assert "Nothing was changed." in say("failover", "f", "--dry-run")
    assert (scene.stored(P0), state(herder)) == (before, FlowState.RUNNING)


def of_group(found: dict[str, Any]) -> list[tuple[object, ...]]:
    names = ("sourceOffset", "translatedOffset", "targetOffset", "skipped", "readAgain")
    return [tuple(one[name] for name in names) for one in found["groups"]]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param(None, (9, 9, 9, 0, 0), id="it has none yet"),
        pytest.param(4, (9, 9, 4, 0, 5), id="a consumer of the target is behind"),
        pytest.param(10, (9, 9, 10, 1, 0), id="a consumer of the target is ahead"),
    ],
)
def test_real_offsets_of_groups_are_in_the_plan_and_in_the_result(
    say: Say, scene: Scene, held: int | None, expected: tuple[int, ...]
) -> None:
    checkpointed(scene, 9)
    copy = TopicPartition(COPY, 0)
    if held is not None:
        scene.target.consumer_commits("billing", copy, held)
    before = scene.target.committed(["billing"])
    ends = {at: log.end for at, log in scene.target.logs.items()}
    planned = json.loads(say("failover", "f", "--dry-run", "-o", "json"))
    assert of_group(planned) == [expected]
    assert scene.target.committed(["billing"]) == before
    assert {at: log.end for at, log in scene.target.logs.items()} == ends
    said = say("failover", "f")
    assert ("Group billing skips at most" in said) == (held is not None)
    done = json.loads(say("failover", "f", "-o", "json"))
    assert of_group(done) == [expected]
    assert scene.target.committed(["billing"])[0]["billing"][copy].offset == expected[2]


def test_a_group_that_resumes_earlier_than_it_could_has_a_note(scene: Scene) -> None:
    with closing(GroupCheckpoints(scene.context)) as groups:
        groups.read(["billing"])
        groups.plan()
        (exact,) = group_entries(groups)
        groups.precision = dict.fromkeys(groups.precision, Precision.CONSERVATIVE)
        (earlier,) = group_entries(groups)
    assert (exact["exact"], exact["note"]) == (True, "")
    assert (earlier["exact"], earlier["note"]) == (False, EARLIER)


def test_a_plan_names_a_group_that_has_members_at_the_target(say: Say, scene: Scene) -> None:
    checkpointed(scene, 3)
    scene.target.consumer_commits("billing", TopicPartition(COPY, 0), 3)
    scene.target.active.add("billing")
    (group,) = json.loads(say("failover", "f", "--dry-run", "-o", "json"))["groups"]
    assert (group["targetOffset"], group["readAgain"]) == (3, 6)
    assert "it has members at the target" in group["note"]


def test_a_group_that_moved_back_on_the_source_moves_back(say: Say, scene: Scene) -> None:
    """No consumer of the target has committed: only headrace has set its offset."""
    checkpointed(scene, 9)
    copy = TopicPartition(COPY, 0)
    scene.target.consumer_commits("billing", copy, 9)
    scene.source.consumer_commits("billing", P0, 2)
    planned = json.loads(say("failover", "f", "--dry-run", "-o", "json"))
    assert of_group(planned) == [(2, 2, 2, 0, 0)]
    assert scene.target.committed(["billing"])[0]["billing"][copy].offset == 9
    done = json.loads(say("failover", "f", "-o", "json"))
    assert of_group(done) == [(2, 2, 2, 0, 0)]
    assert scene.target.committed(["billing"])[0]["billing"][copy].offset == 2


def test_a_group_that_moved_back_stays_where_a_consumer_of_the_target_committed(
    say: Say, scene: Scene
) -> None:
    checkpointed(scene, 7)
    scene.target.consumer_commits("billing", TopicPartition(COPY, 0), 8)
    scene.source.consumer_commits("billing", P0, 2)
    assert of_group(json.loads(say("failover", "f", "-o", "json"))) == [(2, 2, 8, 6, 0)]


@pytest.mark.parametrize(
    ("commits", "late"),
    [pytest.param([3], [], id="once"), pytest.param([3, 4, 6], [(4, 6)], id="without end")],
)
def test_commits_during_the_switch_are_read_again_and_later_ones_are_named(
    say: Say,
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    commits: list[int],
    late: list[tuple[int, int]],
) -> None:
    """Let a group without members commit while the groups of the target are set."""
    scene.source.consumer_commits("billing", P0, 2)
    set_groups, left = scene.target.commit, list(commits)

    def commit(offsets: Mapping[str, Mapping[TopicPartition, Committed]]) -> dict[str, Any]:
        if left:
            scene.source.consumer_commits("billing", P0, left.pop(0))
        return set_groups(offsets)

    monkeypatch.setattr(scene.target, "commit", commit)
    found = json.loads(say("failover", "f", "-o", "json"))
    on_target = late[0][0] if late else commits[-1]
    assert of_group(found) == [(on_target, on_target, on_target, 0, 0)]
    commits_found = [(one["sourceOffset"], one["laterOffset"]) for one in found["lateCommits"]]
    assert commits_found == late
    copy = TopicPartition(COPY, 0)
    assert scene.target.committed(["billing"])[0]["billing"][copy].offset == on_target

    assert of_group(json.loads(say("failover", "f", "-o", "json"))) == [
        (commits[-1], commits[-1], commits[-1], 0, 0)
    ]


@pytest.mark.parametrize("readable", [True, False])
def test_a_group_that_committed_during_the_fail_over_is_watched_for_later_commits(
    say: Say, scene: Scene, meanwhile: list[Callable[[], object]], readable: bool
) -> None:
    """Let a group commit that could be read, or could not be read, before the fail-over."""
    scene.source.consumer_commits("billing", P0, 2 if readable else 3)

    def commit(offset: int) -> Callable[[], object]:
        return lambda: scene.source.consumer_commits("billing", P0, offset)

    if not readable:
        scene.source.forbidden.add("billing")
    first = commit(3) if readable else scene.source.forbidden.clear
    meanwhile += [first, *[lambda: None] * 8, commit(4)]
    found = json.loads(say("failover", "f", "-o", "json"))
    assert of_group(found) == [(3, 3, 3, 0, 0)]
    assert [(one["sourceOffset"], one["laterOffset"]) for one in found["lateCommits"]] == [(3, 4)]
    assert not meanwhile


def test_a_late_commit_is_a_sentence(
    say: Say, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = iter(range(1, 10))
    set_groups = scene.target.commit

    def commit(offsets: Mapping[str, Mapping[TopicPartition, Committed]]) -> dict[str, Any]:
        scene.source.consumer_commits("billing", P0, next(new))
        return set_groups(offsets)

    monkeypatch.setattr(scene.target, "commit", commit)
    assert (
        "Group billing committed on the source after its offset on the target was set, by 1 "
        "offsets: orders/0 from 2 to 3. Stop its clients, and run the command again."
    ) in say("failover", "f")


def test_a_group_that_joins_while_the_flow_stops_refuses(
    say: Say, scene: Scene, herder: StandaloneHerder, meanwhile: list[Callable[[], object]]
) -> None:
    meanwhile += [lambda: None, lambda: scene.source.active.add("billing")]
    said = say("failover", "f", code=1)
    assert "f is not failed over, and keeps running: consumers of billing still run" in said
    assert state(herder) is FlowState.RUNNING
    assert scene.stored(P0).switch is None


def test_a_group_of_any_kind_with_members_refuses(say: Say, scene: Scene) -> None:
    scene.source.consumer_commits("prices", P0, 1)
    scene.source.kinds |= {"prices": "streams", "packing": "share"}
    scene.source.starts["packing"] = {P0: 1}
    scene.source.active |= {"prices", "packing"}
    said = say("failover", "f", code=1)
    assert "consumers of packing, prices still run at east" in said
    scene.source.active.clear()
    say("failover", "f")


def accepted_losses(scene: Scene, at: TopicPartition) -> tuple[Loss, ...]:
    switch = scene.stored(at).switch
    assert switch is not None
    return switch.accepted


GONE = Loss(LossCause.TARGET_RECREATED, 0, 4, 1_000, action=LossAction.CONTINUED)
TRUNCATED = Loss(LossCause.SOURCE_TRUNCATED, 5, 7, 2_000, action=LossAction.RESTARTED)


def lost(scene: Scene, *losses: Loss, at: TopicPartition = P0) -> None:
    """Store losses one after the other, as owners of the partition do."""
    progress = scene.stored(at)
    for loss in losses:
        progress = progress.with_loss(loss)
    scene.context.progress.write({scene.context.progress_key(at): progress})


@pytest.mark.parametrize("options", [(), ("--source-is-gone",)])
def test_a_fail_over_with_losses_is_refused_until_exactly_these_are_accepted(
    say: Say, scene: Scene, herder: StandaloneHerder, options: tuple[str, ...]
) -> None:
    del scene.source.logs[P1]  # the topic was created again with fewer partitions
    lost(scene, GONE, TRUNCATED)
    lost(scene, replace(GONE, cause=LossCause.SOURCE_DELETED), at=P1)
    command = ("failover", "f", *options)
    for refused in ((), ("--dry-run",), ("--accept-losses", "1"), ("--accept-losses", "3")):
        said = say(*command, *refused, code=1)
        assert "The copies of 2 partitions are incomplete" in said
        assert "offsets 5 to 7 are lost" in said
        assert "its offsets 0 to 4, all copies of orders-0 until then, are lost" in said
        assert "of its partition 1 were not copied" in said
    assert (state(herder), scene.stored(P0).switch) == (FlowState.RUNNING, None)

    accepted = ("--accept-losses", "2")
    assert "These losses are accepted." in say(*command, *accepted, "--dry-run")
    found = json.loads(say(*command, *accepted, "-o", "json"))
    assert [one["accepted"] for one in found["losses"]] == [True] * 3
    assert state(herder) is FlowState.STOPPED
    assert accepted_losses(scene, P0) == (GONE, TRUNCATED)
    assert len(accepted_losses(scene, P1)) == 1
    assert "is failed over" in say(*command), "it is done"
    assert "The losses are accepted already" in say(*command, "--accept-losses", "1", code=1)


def test_only_losses_that_are_not_accepted_count(say: Say, scene: Scene) -> None:
    lost(scene, GONE)
    lost(scene, replace(GONE, cause=LossCause.SOURCE_DELETED), at=P1)
    say("failover", "f", "--accept-losses", "2")
    lost(scene, TRUNCATED)
    said = say("failover", "f", "--dry-run", code=1)
    assert "accept the losses by --accept-losses 1." in said
    say("failover", "f", "--dry-run", "--accept-losses", "1")


def test_a_partition_that_a_loss_stopped_is_not_waited_for(
    say: Say, scene: Scene, herder: StandaloneHerder
) -> None:
    scene.source.append(TOPIC, b"x", b"x")
    lost(scene, replace(GONE, action=LossAction.STOPPED))
    found = json.loads(say("failover", "f", "--accept-losses", "1", "-o", "json"))
    assert found["notCopied"] == 2
    assert state(herder) is FlowState.STOPPED


def test_a_loss_of_the_target_that_was_copied_again_is_no_gap(say: Say, scene: Scene) -> None:
    lost(scene, replace(GONE, action=LossAction.RESTARTED))
    assert "No copy is known to be incomplete" in say(
        "failover", "f", "--accept-losses", "1", code=1
    )
    say("failover", "f")


def checkpointed(scene: Scene, target_offset: int) -> None:
    """Write a checkpoint of the group, as the flow does before it sets the offset."""
    log = CheckpointLog(scene.context)
    log.prepare()
    log.write([StoredCheckpoint(Checkpoint("billing", COPY, 0, target_offset, target_offset))])
    log.close()
    ensure_offset_syncs_topic(scene.context.target, scene.context.offset_syncs.topic)


def test_groups_that_are_not_translated_are_named(say: Say, scene: Scene) -> None:
    scene.source.kinds["orders-share"] = "share"
    words = (
        "But share group orders-share: its offsets are not translated "
        "(checkpoints.applyToGroups is false)."
    )
    assert words in say("failover", "f", "--dry-run")
    assert words in say("failover", "f")


def test_start_offsets_of_share_groups_are_set(
    say: Say, scene: Scene, herder: StandaloneHerder
) -> None:
    checkpoints = herder.flow("f").spec.checkpoints
    herder.change_spec("f", checkpoints=checkpoints.model_copy(update={"apply_to_groups": True}))
    scene.source.kinds["packing"] = "share"
    scene.source.starts["packing"] = {P0: 6}
    found = json.loads(say("failover", "f", "-o", "json"))
    assert [(g["group"], g["targetOffset"], g["note"]) for g in found["groups"]] == [
        ("billing", 9, ""),
        ("packing", 6, ""),
    ]
    assert found["problems"] == []
    assert scene.target.starts == {"packing": {TopicPartition(COPY, 0): 6}}


def test_it_is_refused_while_the_source_grows(
    say: Say,
    scene: Scene,
    herder: StandaloneHerder,
    meanwhile: list[Callable[[], object]],
) -> None:
    meanwhile.append(lambda: scene.source.append(TOPIC, b"x", b"x"))
    printed = say("failover", "f", code=1)
    assert "the source still grows: orders/0 +2: stop the producers of east" in printed
    assert state(herder) is FlowState.RUNNING
    assert scene.stored(P0).switch is None


def test_a_record_that_comes_while_the_flow_is_stopped_lets_it_run_on(
    say: Say,
    scene: Scene,
    herder: StandaloneHerder,
    meanwhile: list[Callable[[], object]],
) -> None:
    meanwhile += [lambda: None, lambda: scene.source.append(TOPIC, b"x")]
    assert "f is not failed over, and keeps running: the source still grows: orders/0 +1" in say(
        "failover", "f", code=1
    )
    assert state(herder) is FlowState.RUNNING
    assert scene.stored(P0).switch is None


def test_a_source_that_does_not_answer_while_the_flow_is_stopped_lets_it_run_on(
    say: Say,
    scene: Scene,
    herder: StandaloneHerder,
    meanwhile: list[Callable[[], object]],
) -> None:
    meanwhile += [lambda: None, lambda: setattr(scene.source, "away", True)]
    assert "no broker of east answered" in say("failover", "f", code=1)
    assert state(herder) is FlowState.RUNNING
    assert scene.stored(P0).switch is None


def test_it_is_refused_while_consumers_of_the_source_run(say: Say, scene: Scene) -> None:
    scene.source.active = {"billing"}
    assert "consumers of billing still run at east: stop them" in say("failover", "f", code=1)


def test_what_a_stopped_flow_has_not_copied_is_named(
    say: Say, scene: Scene, herder: StandaloneHerder
) -> None:
    herder.pause("f", state=FlowState.STOPPED)
    scene.source.append(TOPIC, b"x", b"x")
    why = "2 offsets (orders/0 2) are not copied, and the flow does not run: resume it"
    assert why in say("failover", "f", code=1)


def test_what_is_not_copied_in_time_is_unknown(say: Say, scene: Scene) -> None:
    scene.source.append(TOPIC, b"x")
    printed = say("failover", "f", "--timeout-seconds", "1", code=2)
    assert "not copied within 1 s: 1 offsets (orders/0 1); the flow keeps running" in printed


def test_without_the_source_the_last_checkpoints_count(
    say: Say, scene: Scene, herder: StandaloneHerder
) -> None:
    known = replace(scene.stored(P0), source_end=15)
    scene.context.progress.write({scene.context.progress_key(P0): known})
    checkpoints = TopicPartition("east.checkpoints.internal", 0)
    scene.target.create_topic(checkpoints.topic, 1)
    written = Checkpoint("billing", COPY, 0, 4, 4)
    scene.target.write(checkpoints, FakeRecord(written.key(), written.value(), 1))
    scene.source.away = True
    printed = say("failover", "f", "--source-is-gone")
    assert ["billing", "orders/0", "4", "4", "4", "0", "0"] in [
        row.split() for row in printed.splitlines()
    ]
    assert "Not copied, as far as it is known: 5 offsets." in printed
    assert state(herder) is FlowState.STOPPED
    assert scene.target.committed(["billing"])[0]["billing"][TopicPartition(COPY, 0)].offset == 4


class TransactionsToEnd:
    """Fence whose coordinator completes a commit before it ends the transaction."""

    def __init__(self, commit: Callable[[], object]) -> None:
        self.commit, self.ended = commit, set[str]()
        self.closed: dict[TopicPartition, Before] = {}
        self.put_off: Mapping[TopicPartition, Retriable] = {}

    def identify(self, transactional_id: str) -> OwnerProducer:
        return OwnerProducer(transactional_id, 9, 0)

    def end_transactions(self, transactional_ids: Set[str]) -> None:
        self.ended |= transactional_ids
        self.commit()

    def close(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> Mapping[TopicPartition, Closed | Retriable]:
        assert own.transactional_id == "headrace-f-failover"
        self.closed |= partitions
        return {at: self.put_off.get(at) or Closed(0, frozenset()) for at in partitions}


@pytest.mark.parametrize("options", [(), ("--source-is-gone",)])
def test_what_a_cut_off_driver_had_committed_is_known_before_its_partitions_are_closed(
    say: Say, scene: Scene, options: tuple[str, ...]
) -> None:
    """After the switch, it would not count and records without a marker would be aborted."""
    key = scene.context.progress_key(P0)
    known = replace(
        scene.stored(P0), source_offset=10, target_offset=10, source_end=15,
        writer=OwnerProducer("headrace-cut-off", 7, 0),
    )  # fmt: skip
    before = replace(known, source_offset=6, target_offset=6) if options else known
    scene.context.progress.write({key: before})
    scene.context.exactly_once = True
    fence = TransactionsToEnd(lambda: scene.context.progress.write({key: known}))
    cast("Any", scene.context.mover).fencing = fence
    found = json.loads(say("failover", "f", "-o", "json", *options))
    one, _ = found["partitions"]
    assert fence.ended == {"headrace-cut-off"}
    assert fence.closed[P0].target_offset == 10
    assert fence.closed[P0].progress == scene.context.progress.partition_of(key)
    assert (one["copiedTo"], one["notStored"]) == (10, 0)
    assert found["notCopied"] == (5 if options else 0)


def test_a_fail_over_of_a_part_of_the_partitions_is_a_failure(
    say: Say, scene: Scene, herder: StandaloneHerder
) -> None:
    fence = TransactionsToEnd(lambda: None)
    fence.put_off = {P1: Retriable("orders-1 on west has no leader")}
    cast("Any", scene.context.mover).fencing = fence
    said = say("failover", "f", code=1)
    assert "f is not completely failed over: correct the errors below, and run" in said
    assert "But orders-1 on west has no leader." in said
    assert not watched(herder)
    assert scene.target.committed(["billing"])[0] == {}
    assert (scene.stored(P0).switch is None, scene.stored(P1).switch) == (False, None)

    fence.put_off = {}
    assert "f is failed over, and stopped" in say("failover", "f")
    assert watched(herder)


def test_a_copy_that_lost_its_end_is_switched_where_it_ends_now(say: Say, scene: Scene) -> None:
    lost(scene, replace(GONE, action=LossAction.STOPPED))
    scene.target.logs[TopicPartition(COPY, 0)].entries[4:] = []
    fence = TransactionsToEnd(lambda: None)
    cast("Any", scene.context.mover).fencing = fence
    found = json.loads(say("failover", "f", "--accept-losses", "1", "-o", "json"))
    assert (fence.closed[P0].target_offset, found["partitions"][0]["targetEnd"]) == (4, 4)
    assert [one["targetOffset"] for one in found["groups"]] == [4]


def test_it_is_not_copied_until_the_fail_over_is_aborted(
    say: Say, scene: Scene, herder: StandaloneHerder
) -> None:
    say("failover", "f")
    scene.source.append(TOPIC, b"late")
    scene.restart()
    scene.recover()
    assert len(scene.copies()) == 10
    assert "was failed over to west at offset" in scene.error
    assert "`headrace failover f --abort`; `headrace flow reverse f` copies back" in scene.error
    error = scene.task.status.last_error
    assert error is not None
    assert error.reason == Reason.FAILED_OVER
    assert scene.phase is TaskPhase.RESTORING
    assert "f is not failed over any more, and copies again." in say("failover", "f", "--abort")
    assert state(herder) is FlowState.RUNNING
    scene.recover()
    scene.settle()
    assert len(scene.copies()) == 11
    assert "f is not failed over: nothing is changed" in say("failover", "f", "--abort")


def test_flow_that_runs_may_claim_partitions_while_the_fail_over_is_aborted(
    say: Say, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("failover", "f")
    progress, key = scene.context.progress, scene.context.progress_key(P0)
    write = progress.write

    def with_claim(entries: Any) -> None:
        write(entries)
        known = scene.stored(P0)
        assert known.switch is None
        write({key: replace(known, owner="a driver", epoch=known.epoch + 1)})

    monkeypatch.setattr(progress, "write", with_claim)
    assert "is not failed over any more" in say("failover", "f", "--abort")
    assert scene.stored(P0).owner == "a driver"


def test_abort_does_not_claim_that_a_flow_which_it_did_not_start_copies(
    say: Say, herder: StandaloneHerder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "flow.json"
    file.write_text(herder.flow("f").model_dump_json(by_alias=True, exclude_none=True))
    say("failover", "f")

    def names(_: LocalFlows) -> list[str]:
        raise NotRunning("no flow runs on this machine")

    monkeypatch.setattr(LocalFlows, "names", names)
    printed = say("failover", "f", "-f", str(file), "--abort")
    assert (
        "f is not failed over any more, and copies again once it runs with spec.state Running"
        in printed
    )
    assert state(herder) is FlowState.STOPPED


DENIED = write_denial(TOPIC)._asdict()


def test_writes_are_denied_until_it_is_aborted(
    say: Say, scene: Scene, meanwhile: list[Callable[[], object]]
) -> None:
    own = write_denial("users")._asdict()
    scene.source.acls = [own]
    # Brokers notice it with a delay.
    meanwhile += [lambda: None, lambda: scene.source.append(TOPIC, b"late"), scene.settle]
    say("failover", "f", "--deny-writes")
    assert scene.source.acls == [own, DENIED]
    assert len(scene.copies()) == 11
    assert "f is not failed over any more, and copies again." in say("failover", "f", "--abort")
    assert scene.source.acls == [own]


def test_what_was_denied_before_stays_denied(say: Say, scene: Scene) -> None:
    scene.source.acls = [DENIED]
    say("failover", "f", "--deny-writes")
    say("failover", "f", "--abort")
    assert scene.source.acls == [DENIED]


def test_a_fail_over_that_is_refused_denies_nothing(say: Say, scene: Scene) -> None:
    scene.source.active = {"billing"}
    say("failover", "f", "--deny-writes", code=1)
    say("failover", "f", "--deny-writes", "--dry-run")
    assert scene.source.acls == []
    printed = say("failover", "f", "--deny-writes", "--source-is-gone", code=3)
    assert "--deny-writes needs the source" in printed


def test_what_an_interrupted_one_denied_is_allowed_again(say: Say, scene: Scene) -> None:
    deny_writes(scene.context, [TOPIC])
    assert scene.source.acls == [DENIED]
    say("failover", "f", "--abort")
    assert scene.source.acls == []


def test_the_way_back_to_prefixes_names_what_stays_denied(say: Say, scene: Scene) -> None:
    say("failover", "f", "--deny-writes")
    assert f"Writes to {TOPIC} of east stay denied until `headrace failover f --abort`" in say(
        "flow", "reverse", "f"
    )
    assert scene.source.acls == [DENIED]
    say("failover", "f", "--abort")
    say("failover", "f")
    assert "stay denied" not in say("flow", "reverse", "f")


def test_without_the_right_to_deny_writes_nothing_happens(
    say: Say, scene: Scene, herder: StandaloneHerder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise Fatal("could not add ACLs: Cluster authorization failed")

    monkeypatch.setattr(scene.source, "add_acls", refuse)
    printed = say("failover", "f", "--deny-writes", code=1)
    assert "writes to topics of east cannot be denied: could not add ACLs" in printed
    assert "It needs the permissions Describe and Alter on that cluster" in printed
    assert (state(herder), scene.stored(P0).switch) == (FlowState.RUNNING, None)


def test_groups_come_back_to_the_record_that_they_had_reached(say: Say, scene: Scene) -> None:
    scene.source.consumer_commits("audit", P0, 2)
    say("failover", "f")
    copy = TopicPartition(COPY, 0)
    scene.target.consumer_commits("billing", copy, 10, "own")
    scene.target.consumer_commits("audit", copy, 5)
    scene.target.append(COPY, b"new")
    scene.source.append(TOPIC, b"unsent")
    printed = say("flow", "reverse", "f", "--dry-run")
    assert "Group billing would resume at orders/0 10." in printed
    assert scene.source.committed_by["billing"][P0].offset == 9
    printed = say("flow", "reverse", "f")
    assert "west has 1 offsets (east.orders/0 1) in copies, written since" in printed
    assert "east has 1 offsets (orders/0 1) that were never sent to west" in printed
    assert scene.source.committed_by["billing"][P0] == Committed(10, "own")
    assert scene.source.committed_by["audit"][P0].offset == 5
    assert "name: f-back" in printed
    assert "alias: west" in printed

    # The command may run again after groups have read further.
    scene.target.consumer_commits("audit", copy, 7)
    assert "Group audit resumes at orders/0 7." in say("flow", "reverse", "f")
    scene.source.consumer_commits("audit", P0, 3)  # of consumers on the source
    scene.source.not_committable["billing"] = GroupActive("it has members")
    scene.source.committed_by["billing"][P0] = Committed(9, "")
    printed = say("flow", "reverse", "f")
    assert "Group audit, orders/0, is not changed: consumers of the old source have" in printed
    assert scene.source.committed_by["audit"][P0].offset == 3
