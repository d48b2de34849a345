"""The way back after a fail-over: where the reverse flow begins, kept as its progress."""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.api import TopicPartition
from headrace.connect.checkpoint.checkpoint_log import CheckpointLog
from headrace.connect.failover.fail_over import Survey
from headrace.connect.runtime.context import FlowContext
from headrace.connect.takeover.beginnings import Beginning, store_beginnings
from headrace.errors import InvalidSpec
from headrace.kafka import Position
from headrace.replication import Checkpoint, Progress, StoredCheckpoint


class Begin(NamedTuple):
    """Of a partition."""

    source_offset: int
    """At the new source: what came there since the switch."""
    target_offset: int
    """At the old source: where its log ends."""
    unsent: int
    """Offsets that the old source has and never sent: what is copied follows them."""
    progress: Progress | None
    """Of the reverse flow, as it is stored already."""

    @property
    def made(self) -> bool:
        """Whether this fail-over was reversed before."""
        one = self.progress
        return one is not None and one.switch is None and one.source_offset >= self.source_offset


def check_switched(there: FlowContext, found: Survey) -> None:
    """Raises ``InvalidSpec`` for a flow that is not failed over."""
    if open_ := [at for at, one in found.partitions.items() if one.switch is None]:
        raise InvalidSpec(
            f"{there.name} is not failed over ({min(open_)} has no switch): "
            f"`headrace failover {there.name}` comes first"
        )


def unsent(found: Survey, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """How many offsets below ``ends``, of the old source, were never sent; without those of which
    that is none."""
    return {
        at: more
        for at, one in found.partitions.items()
        if one.stored and (more := ends[at] - one.stored.source_offset) > 0
    }


def survey_back(
    there: FlowContext, back: FlowContext, found: Survey
) -> dict[TopicPartition, Begin]:
    """``there`` is failed over, and ``back`` is its reverse. Raises ``InvalidSpec`` for a flow that
    is not failed over, and where the reverse flow has copied before it was."""
    check_switched(there, found)
    ends = back.target.offsets(found.partitions, Position.LATEST)
    back.progress.start()
    back.progress.read_to_end()
    left, begins = unsent(found, ends), {}
    for at, one in found.partitions.items():
        assert one.switch is not None
        begins[at] = Begin(one.switch.target_end, ends[at], left.get(at, 0), back.stored(at))
    for at, begin in begins.items():
        stored = begin.progress
        if stored is not None and stored.switch is None and not begin.made:
            raise InvalidSpec(
                f"a flow copies {at} from {back.source.name} to {back.target.name} already, and is "
                f"at offset {stored.source_offset}, before the fail-over: stop it, and fail it over"
            )
    return begins


def begin(back: FlowContext, begins: Mapping[TopicPartition, Begin]) -> None:
    """Store where the reverse flow begins; those that are made stay. Raises ``Retriable``."""
    begins = {at: one for at, one in begins.items() if not one.made}
    store_beginnings(
        back,
        "reverse",
        {
            at: Beginning(one.source_offset, one.target_offset, one.progress)
            for at, one in begins.items()
        },
    )


def hand_over_groups(there: FlowContext, back: FlowContext) -> None:
    """What groups have committed at the old source is headrace's to change: nobody has read on
    there. A checkpoint of the reverse flow says so, before its first own one."""
    forward, backward = CheckpointLog(there), CheckpointLog(back)
    try:
        forward.prepare()
        written = forward.of_flow()
        committed, _ = back.target.committed({group for group, _ in written})
        backward.prepare()
        made = []
        for (group, at), stored in written.items():
            held = committed.get(group, {}).get(at)
            here = stored.checkpoint.target_offset
            if held is not None:
                one = Checkpoint(group, at.topic, at.partition, here, held.offset, held.metadata)
                known = backward.before(one.key())
                if known is None or known.checkpoint.source_offset < here:
                    made.append(StoredCheckpoint(one, (held.offset,)))
        backward.write(made)
    finally:
        forward.close()
        backward.close()
