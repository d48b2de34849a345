"""ACLs of a copy, by MirrorMaker 2's rules."""

import pytest

from headrace.replication import TopicAcl, wanted_acls
from headrace.replication.topic_settings import ALLOW, DENY, LITERAL, PREFIXED

COPIES = {"orders": "east.orders"}


def acl(
    topic: str = "orders",
    operation: str = "Read",
    permission: str = ALLOW,
    principal: str = "User:ann",
    host: str = "*",
) -> TopicAcl:
    """Return an ACL. A topic that ends with * is a prefix."""
    prefix = topic.endswith("*") and topic != "*"
    pattern = PREFIXED if prefix else LITERAL
    name = topic[:-1] if prefix else topic
    return TopicAcl(name, pattern, principal, host, operation, permission)


def copied(*there: TopicAcl) -> list[tuple[str, str, str]]:
    found = wanted_acls(there, COPIES)
    assert {(one.topic, one.pattern) for one in found} <= {("east.orders", LITERAL)}
    return sorted((one.permission, one.operation, one.principal) for one in found)


@pytest.mark.parametrize("operation", ["Read", "Describe", "DescribeConfigs"])
def test_what_may_be_read_of_the_source_may_be_read_of_the_copy(operation: str) -> None:
    assert copied(acl(operation=operation)) == [("Allow", operation, "User:ann")]


def test_of_all_a_copy_gets_read() -> None:
    assert copied(acl(operation="All")) == [("Allow", "Read", "User:ann")]


@pytest.mark.parametrize("operation", ["Write", "Delete", "Alter", "AlterConfigs", "Create"])
def test_nobody_may_change_a_copy_for_it(operation: str) -> None:
    assert copied(acl(operation=operation)) == []


@pytest.mark.parametrize("topic", ["*", "ord*", "payments"])
def test_what_is_allowed_by_a_pattern_or_of_another_topic_is_not_copied(topic: str) -> None:
    assert copied(acl(topic)) == []


@pytest.mark.parametrize("topic", ["*", "ord*", "orders"])
def test_what_is_denied_by_any_of_them_is_denied_on_the_copy(topic: str) -> None:
    denied = acl(topic, permission=DENY, principal="User:bob")
    assert copied(acl(principal="User:*"), denied) == [
        ("Allow", "Read", "User:*"),
        ("Deny", "Read", "User:bob"),
    ]
    assert copied(denied) == [], "nobody may read it at all"


def test_denied_writes_of_a_source_that_rests_do_not_keep_the_mirror_from_writing() -> None:
    denied = acl("*", "Write", DENY, "User:*")
    assert copied(acl(), denied) == [("Allow", "Read", "User:ann")]


def test_a_key_is_read_as_it_was_written() -> None:
    one = acl()
    assert TopicAcl.decode(one.encode()) == one
    for key in (b"", b"{}", b"[]", b"1"):
        with pytest.raises(ValueError, match=r"ACL|Expecting"):
            TopicAcl.decode(key)
