"""Requests for groups that are not answered once."""

import pytest
from support.checkpoint_units import Units
from support.source_tasks import P0, Scene

from headrace.cli.flow.reverse import reversed_flow
from headrace.connect.checkpoint.checkpoint_log import CheckpointLog
from headrace.connect.checkpoint.group_checkpoints import GroupCheckpoints
from headrace.connect.failover.failback import hand_over_groups
from headrace.connect.runtime.context import FlowContext
from headrace.errors import Fatal
from headrace.kafka import SHARE
from headrace.replication import Checkpoint


@pytest.fixture
def units(scene: Scene) -> Units:
    """Return units of a flow that applies offsets to groups, with 20 copied records."""
    units = Units(scene)
    scene.change_spec(checkpoints={"applyToGroups": True})
    units.copied(20)
    return units


def test_a_share_group_that_was_not_listed_once_is_followed_later(
    units: Units, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.source.kinds["shared"], scene.source.starts["shared"] = SHARE, {P0: 5}
    checkpoints = GroupCheckpoints(scene.context)
    with monkeypatch.context() as patch:
        patch.setattr(scene.source, "protocol_types", dict)
        checkpoints.read(["shared"])
    assert not checkpoints.waiting
    checkpoints.read(["shared"])
    assert [position.group for position in checkpoints.waiting] == ["shared"]


def test_groups_are_handed_over_together_or_not_at_all(units: Units, scene: Scene) -> None:
    scene.source.consumer_commits("billing", P0, 12)
    units.make_task("billing").run_once()
    reverse = reversed_flow(scene.context.flow)
    back = FlowContext(reverse, scene.driver, clients=scene.kafka.clients(), clock=scene.clock)
    written = CheckpointLog(back)
    try:
        scene.source.forbidden.add("billing")
        with pytest.raises(Fatal, match="may not read billing"):
            hand_over_groups(scene.context, back)
        scene.source.forbidden.clear()
        hand_over_groups(scene.context, back)
        written.prepare()
        known = written.before(Checkpoint("billing", *P0, 0, 0).key())
        assert known is not None
        assert known.checkpoint.target_offset == 12
    finally:
        written.close()
        back.close()
