"""Schedules in the syntax of cron, with the allowed values of their five fields."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from headrace.api.model import Matching, refusal

_MONTHS = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
_DAYS = "SUN|MON|TUE|WED|THU|FRI|SAT"
_MAX_DAYS = dict(enumerate((31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), start=1))
"""Maximum number of days of each month, as in a leap year."""


def _field(value: str, others: str = "") -> str:
    """Return the pattern of a field: values, ranges, steps or ``others``, separated by commas."""
    item = rf"((\*|(?:{value})(-(?:{value}))?)(/0*[1-9]\d?)?{others})"
    return f"{item}(,{item})*"


_FIELDS = (
    _field(r"[0-5]?\d"),
    _field(r"[01]?\d|2[0-3]"),
    _field(r"0?[1-9]|[12]\d|3[01]", r"|[L?]"),
    _field(rf"0?[1-9]|1[0-2]|(?i:{_MONTHS})"),
    _field(rf"[0-7]|(?i:{_DAYS})", r"|[?]|[0-7]#[1-5]|L[0-7]"),
)
_NAMED = "@(yearly|annually|monthly|weekly|daily|midnight|hourly)"


def _has_a_day(schedule: str) -> str:
    """Reject a schedule whose days of the month do not exist in its months."""
    if schedule.startswith("@"):
        return schedule
    _, _, days, months, weekdays = schedule.split()
    listed = re.findall(r"(?:^|,)(\d+)(?=,|$)", days)
    if weekdays not in ("*", "?") or len(listed) < len(days.split(",")):
        return schedule
    numbers = re.findall(r"(?:^|,)(\d+)(?=,|$)", months)
    among = [int(number) for number in numbers]
    if len(among) == len(months.split(",")) and all(
        int(day) > _MAX_DAYS[month] for day in listed for month in among
    ):
        raise refusal("must name a day that a month of it has")
    return schedule


_NUMBERS = {
    name: number
    for names in (_DAYS.split("|"), ["", *_MONTHS.split("|")])
    for number, name in enumerate(names)
}
_SUNDAY_AT_END = 7


def _has_no_backward_range(schedule: str) -> str:
    """Reject a range that runs backwards, as Kubernetes does for a CronJob."""
    for first, last in re.findall(r"(?i)(?<![#\w])(\d+|[a-z]{3})-(\d+|[a-z]{3})", schedule):
        start, end = (_NUMBERS.get(one.upper(), one) for one in (first, last))
        end = _SUNDAY_AT_END if last.upper() == "SUN" else end
        if int(end) < int(start):
            raise refusal(f"must not have the range {first}-{last}, which runs backwards")
    return schedule


Cron = Annotated[
    str,
    Field(max_length=256),
    Matching(
        rf"{_NAMED}|{' +'.join(_FIELDS)}",
        "must be a cron schedule of five fields, like 0 * * * *",
    ),
    AfterValidator(_has_a_day),
    AfterValidator(_has_no_backward_range),
]
"""Schedule of five fields, or one of the names that a Kubernetes CronJob supports."""
