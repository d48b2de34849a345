"""Settings that prevent a topic from being a correct copy."""

import pytest

from headrace.replication import incompatible_settings, settings_of_other_offsets

SOURCE = {
    "max.message.bytes": "1000",
    "retention.ms": "604800000",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": "3600000",
    "compression.type": "producer",
    "cleanup.policy": "delete",
}


def test_equal_settings_fit() -> None:
    assert list(incompatible_settings(SOURCE, SOURCE)) == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max.message.bytes", "999"),
        ("retention.ms", "1"),
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.before.max.ms", "604799999"),
        ("message.timestamp.after.max.ms", "1"),
        ("compression.type", "zstd"),
        ("cleanup.policy", "compact"),
    ],
)
def test_one_that_refuses_changes_or_deletes_is_named(setting: str, value: str) -> None:
    (found,) = incompatible_settings(SOURCE, SOURCE | {setting: value})
    assert found.setting == setting
    assert value in found.why


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max.message.bytes", "1001"),
        ("retention.ms", "-1"),
        ("message.timestamp.before.max.ms", "604800000"),
    ],
)
def test_one_that_takes_more_fits(setting: str, value: str) -> None:
    assert list(incompatible_settings(SOURCE, SOURCE | {setting: value})) == []


def test_a_limit_below_what_an_endless_source_keeps_is_one() -> None:
    endless = SOURCE | {"retention.ms": "-1"}
    year = endless | {"message.timestamp.before.max.ms": str(365 * 86_400_000)}
    assert [one.setting for one in incompatible_settings(endless, year)] == [
        "message.timestamp.before.max.ms"
    ]


def test_what_keeps_records_as_they_come_fits_every_source() -> None:
    source = SOURCE | {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"}
    assert list(incompatible_settings(source, SOURCE)) == []


@pytest.mark.parametrize("later", [False, True])
def test_settings_that_brokers_need_for_equal_offsets(later: bool) -> None:
    source = SOURCE | {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"}
    assert list(settings_of_other_offsets(source, SOURCE, begins_later=later)) == []
    copy = source | {"cleanup.policy": "compact", "max.message.bytes": "999"}
    found = {
        one.setting: one.wanted
        for one in settings_of_other_offsets(source, copy, begins_later=later)
    }
    assert found == {
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
        "max.message.bytes": "1000",
    } | ({"cleanup.policy": "compact,delete"} if later else {})
