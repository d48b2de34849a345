import re

import pytest

from headrace.api import (
    JOURNAL,
    ReplicationFlowSpec,
    acls_topic,
    audits_topic,
    checkpoints_topic,
    connect_offsets_topic,
    denials_topic,
    earlier_name,
    is_internal,
    made_topics_topic,
    offset_syncs_topic,
    progress_topic,
)

_NAMES = (progress_topic, acls_topic, denials_topic, made_topics_topic)
OWN = (JOURNAL, *(name("east") for name in _NAMES))


@pytest.mark.parametrize("topic", [*OWN, audits_topic("east")])
def test_mirror_maker_takes_own_topics_for_its_internal_topics(topic: str) -> None:
    # DefaultReplicationPolicy.isMM2InternalTopic, and the default exclude of its topic filter.
    assert topic.startswith("mm2")
    assert topic.endswith(".internal")
    assert is_internal(topic)


@pytest.mark.parametrize("topic", OWN)
def test_earlier_names_are_not_copied_either(topic: str) -> None:
    assert earlier_name(topic) == topic.removeprefix("mm2-")
    assert is_internal(earlier_name(topic))


@pytest.mark.parametrize("separator", [".", "-", "_", "--"])
def test_mirror_makers_topics_are_internal_with_every_separator(separator: str) -> None:
    assert is_internal(checkpoints_topic("east", separator))
    assert is_internal(offset_syncs_topic("east", separator))
    assert is_internal(connect_offsets_topic("east"))


@pytest.mark.parametrize(
    "topic", ["orders.internal", "orders-internal", "mm2", "headrace-orders.internal", "internal"]
)
def test_topics_of_users_are_copied_whatever_their_names_end_in(topic: str) -> None:
    assert not is_internal(topic)
    excluded = ReplicationFlowSpec.model_fields["topics"].annotation.model_fields["exclude"].default  # type: ignore[union-attr]
    assert not any(re.fullmatch(pattern, topic) for pattern in excluded)


def test_default_exclude_is_the_one_of_mirror_maker_4() -> None:
    excluded = ReplicationFlowSpec.model_fields["topics"].annotation.model_fields["exclude"].default  # type: ignore[union-attr]
    assert excluded == (r"mm2.*\.internal", r".*\.replica", "__.*")
