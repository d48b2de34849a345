"""Checks the flow, the topics and the permissions before an audit starts Spark."""

import time

from headrace.api import FlowState, ReplicationFlow
from headrace.control import control
from headrace.errors import GaveUp
from headrace.kafka import Admin, RightsAdmin
from headrace.mirror_test import MirrorTestRun, audited_topics

_POLL_S = 0.5


def wait_until_current(flow: ReplicationFlow, settle_s: int) -> None:
    """Wait until a flow is at most ``settle_s`` seconds behind its source.

    Raises:
        GaveUp: The flow is paused, stays further behind for ``settle_s`` seconds, or does not know
            its lag for that time. The audit would report the records that are not copied yet as
            missing.
    """
    name, deadline = flow.metadata.name, time.monotonic() + settle_s
    why = "records that it has not copied would be reported as missing"
    if flow.spec.state is not FlowState.RUNNING or flow.spec.paused_partitions:
        what = flow.spec.state.lower() if not flow.spec.paused_partitions else "paused in part"
        raise GaveUp(f"flow {name} is {what}: {why}; resume it (`headrace flow resume {name}`)")
    while True:
        lag = control.request(name, "status").get("lag")
        if lag is not None and lag["seconds"] <= settle_s:
            return
        if time.monotonic() > deadline:
            behind = f"flow {name} does not know its lag (`headrace status {name}` says why)"
            if lag is not None:
                behind = (
                    f"flow {name} is {lag['seconds']:,} s and {lag['records']:,} records behind, "
                    f"more than {settle_s} s (settleSeconds)"
                )
            raise GaveUp(f"{behind}: {why}; audit it when it has caught up")
        time.sleep(_POLL_S)


def check_topics(run: MirrorTestRun) -> None:
    """Check the topics that an audit compares.

    Raises:
        InvalidSpec: A pattern or the number of partitions is wrong.
        GaveUp: The user of a cluster may not read a topic, so that nothing could be proved.
    """
    topics = audited_topics(run, *(Admin(side).topics() for side in (run.source, run.target)))
    here = [topic.source for topic in topics]
    there = [topic.target for topic in topics]  # a hidden topic would look like a missing one
    RightsAdmin(run.source).check_comparable(here)
    excusing = run.changes.topics_of_refused(run.source.alias)
    RightsAdmin(run.target).check_comparable(there, excusing)
