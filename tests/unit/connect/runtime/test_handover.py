"""Conditions under which a driver may claim a unit."""

import pytest

from headrace.api import (
    ObjectMeta,
    ReplicationTask,
    ReplicationTaskSpec,
    ReplicationTaskStatus,
    TaskType,
)
from headrace.connect import DriverIdentity, may_claim

ME = DriverIdentity("driver-2", "bbb")


@pytest.mark.parametrize(
    ("assigned", "owner", "lost", "waited_s", "may"),
    [
        ("driver-2", ("", ""), "", 0, True),  # unowned
        ("driver-1", ("", ""), "", 99, False),  # assigned to another driver
        ("driver-2", ("driver-1", "aaa"), "", 0, False),  # still held
        ("driver-2", ("driver-1", "aaa"), "aaa", 0, True),  # the owner is known to be lost
        ("driver-2", ("driver-1", "ccc"), "aaa", 0, False),  # an earlier incarnation was lost
        ("driver-2", ("driver-1", "aaa"), "", 10, True),  # it did not release in time
        ("driver-2", ("driver-2", "old"), "", 0, True),  # an earlier incarnation of this driver
    ],
)
def test_may_claim(
    assigned: str, owner: tuple[str, str], lost: str, waited_s: float, may: bool
) -> None:
    task = ReplicationTask(
        metadata=ObjectMeta(name="t"),
        spec=ReplicationTaskSpec(
            flow_name="f",
            type=TaskType.SOURCE_TASK,
            driver_name=assigned,
            lost_incarnation=lost,
        ),
        status=ReplicationTaskStatus(driver_name=owner[0], driver_incarnation=owner[1], epoch=4),
    )
    assert may_claim(task, ME, waited_s) is may
