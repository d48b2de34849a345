"""Schedules that a manifest may have are those that croniter reads, which the operator uses."""

from datetime import datetime

import pytest
from croniter import CroniterError, croniter
from pydantic import TypeAdapter, ValidationError

from headrace.api.cron import Cron

GOOD = (
    "@daily",
    "0 * * * *",
    "*/5 1-3 * JAN MON",
    "0,30 0-23/2 1,15 jan-mar 5-7",
    "0 0 L * ?",
    "0 0 ? * 5#2",
    "0 0 * * L5",
    "5/15 * 29 2 *",
    "0 0 31 4,5 *",
    "0 0 30 2 1",
    "00 07  * * 0",
)
BAD = (
    "hourly",
    "@reboot",
    "61 * * * *",
    "0 24 * * *",
    "0 0 0 * *",
    "0 0 32 * *",
    "0 0 * 13 *",
    "0 0 * * 8",
    "0 0 * * MONDAY",
    "*/0 * * * *",
    "0 0 30 2 *",
    "0 0 31 4,6 *",
    "H * * * *",
    "0 0 * * 5#6",
    "1,,2 * * * *",
    "-1 * * * *",
    "* * * *",
    "0 0 0 * * *",
)


def accepts(schedule: str) -> bool:
    try:
        TypeAdapter(Cron).validate_python(schedule)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("schedule", GOOD)
def test_a_schedule_that_names_times_is_accepted(schedule: str) -> None:
    assert croniter(schedule, datetime(2026, 1, 1)).get_next(datetime)
    assert accepts(schedule)


@pytest.mark.parametrize("schedule", BAD)
def test_a_schedule_that_names_no_time_is_refused(schedule: str) -> None:
    assert not accepts(schedule)
    if len(schedule.split()) == 5:
        with pytest.raises(CroniterError):
            croniter(schedule, datetime(2026, 1, 1)).get_next(datetime)
