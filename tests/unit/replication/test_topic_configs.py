"""Settings of a target topic that are written, and settings that never are."""

from collections.abc import Mapping

import pytest

from headrace.api.flow import TopicConfigs
from headrace.replication import config_changes

THERE = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "min.insync.replicas": "2",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "unclean.leader.election.enable": "false",
    "leader.replication.throttled.replicas": "",
}


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        ({}, {}),
        ({"retention.ms": "604800000"}, {}),
        ({"retention.ms": "5", "cleanup.policy": "delete"}, {"retention.ms": "5"}),
        ({"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}, {}),
        ({"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "1"}, {}),
        ({"remote.storage.enable": "true"}, {}),
    ],
)
def test_only_what_was_set_and_differs_and_is_known_there_is_written(
    source: Mapping[str, str], changes: Mapping[str, str]
) -> None:
    assert config_changes(source, THERE, TopicConfigs().exclude) == changes


def test_throttles_are_never_written_and_patterns_match_whole_names() -> None:
    source = {
        "leader.replication.throttled.replicas": "*",
        "min.insync.replicas": "1",
        "retention.ms": "5",
    }
    assert config_changes(source, THERE, []) == {"min.insync.replicas": "1", "retention.ms": "5"}
    assert config_changes(source, THERE, ["retention", "min.*"]) == {"retention.ms": "5"}


def test_what_was_removed_on_the_source_goes_unless_the_target_has_another_value() -> None:
    there = THERE | {"retention.ms": "5", "cleanup.policy": "compact", "min.insync.replicas": "3"}
    removed = {("retention.ms", "5"), ("cleanup.policy", "delete"), ("min.insync.replicas", "3")}
    assert config_changes({}, there, ["min.*"], removed) == {"retention.ms": None}
    assert (
        config_changes({"retention.ms": "5"}, there, [], removed - {("min.insync.replicas", "3")})
        == {}
    )
