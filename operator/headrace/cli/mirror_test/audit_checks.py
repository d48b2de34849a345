"""Checks of the flow, the topics and the permissions before an audit starts Spark."""

import time
from collections.abc import Sequence

from headrace.api import FlowState, ReplicationFlow
from headrace.control import control
from headrace.errors import GaveUp
from headrace.kafka import Admin, Operation, RightsAdmin
from headrace.mirror_test import MirrorTestRun, audited_topics

_POLL_S = 0.5
_NEEDED = (Operation.DESCRIBE, Operation.READ, Operation.DESCRIBE_CONFIGS)
_NAMED = 3
"""Maximum number of topics in a message."""


def wait_until_current(flow: ReplicationFlow, settle_s: int) -> None:
    """Wait until a flow is at most ``settle_s`` seconds behind its source.

    Raises:
        GaveUp: The flow is paused, or it remains further behind for ``settle_s`` seconds. Records
            that it has not copied would be reported as missing.
    """
    name, deadline = flow.metadata.name, time.monotonic() + settle_s
    why = "records that it has not copied would be reported as missing"
    if flow.spec.state is not FlowState.RUNNING or flow.spec.paused_partitions:
        what = flow.spec.state.lower() if not flow.spec.paused_partitions else "paused in part"
        raise GaveUp(f"flow {name} is {what}: {why}; resume it (`headrace flow resume {name}`)")
    while True:
        lag = control.request(name, "status").get("lag") or {}
        behind_s = lag.get("seconds", 0)
        if behind_s <= settle_s:
            return
        if time.monotonic() > deadline:
            raise GaveUp(
                f"flow {name} is {behind_s:,} s and {lag.get('records', 0):,} records behind, more "
                f"than {settle_s} s (settleSeconds): {why}; audit it when it has caught up"
            )
        time.sleep(_POLL_S)


def check_topics(run: MirrorTestRun) -> None:
    """Check that the audit's topics match and can be read.

    Raises:
        InvalidSpec: A pattern or the number of partitions is wrong.
        GaveUp: A permission to read a topic is missing.
    """
    topics = audited_topics(run, *(Admin(side).topics() for side in (run.source, run.target)))
    here = [topic.source for topic in topics]
    there = [topic.target for topic in topics]  # a hidden topic would look missing
    for side, names in ((run.source, here), (run.target, there)):
        rights = RightsAdmin(side).rights_on_existing(names)
        for operation in _NEEDED:
            lacking = sorted(name for name in rights if operation not in rights[name])
            if lacking:
                raise GaveUp(
                    f"the user of {side.alias} may not {operation} topic {_few(lacking)}: it "
                    "cannot be compared; allow it, or leave it out (spec.audit.exclude)"
                )


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
