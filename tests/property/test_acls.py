"""For any ACLs of the source, its copy allows nothing that the source does not."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from headrace.replication import TopicAcl, wanted_acls
from headrace.replication.topic_settings import ALLOW, DENY, LITERAL, PREFIXED

_IMPLY = {"Describe": ("Read", "Write", "Delete", "Alter"), "DescribeConfigs": ("AlterConfigs",)}
_ACLS = st.builds(
    TopicAcl,
    st.sampled_from(("orders", "*", "ord", "o", "payments", "orders2")),
    st.sampled_from((LITERAL, PREFIXED)),
    st.sampled_from(("User:*", "User:ann", "User:bob")),
    st.sampled_from(("*", "10.0.0.1")),
    st.sampled_from(("All", "Read", "Write", "Describe", "Delete", "DescribeConfigs", "Alter")),
    st.sampled_from((ALLOW, DENY)),
)


def may(acls: list[TopicAcl], topic: str, who: str, host: str, operation: str) -> bool:
    """Return the decision of Kafka's StandardAuthorizer."""

    def concerns(one: TopicAcl) -> bool:
        about = one.covers(topic) and one.principal in (who, "User:*")
        return about and one.host in (host, "*")

    about = [one for one in acls if concerns(one)]
    denying, allowing = {operation, "All"}, {operation, "All", *_IMPLY.get(operation, ())}
    if any(one.permission == DENY and one.operation in denying for one in about):
        return False
    return any(one.permission == ALLOW and one.operation in allowing for one in about)


@given(st.lists(_ACLS, max_size=8))
def test_nothing_is_allowed_of_a_copy_that_is_not_of_its_source(there: list[TopicAcl]) -> None:
    copy = list(wanted_acls(there, {"orders": "east.orders"}))
    for who, host, operation in itertools.product(
        ("User:ann", "User:bob", "User:eve"),
        ("10.0.0.1", "10.0.0.2"),
        ("Read", "Write", "Describe", "DescribeConfigs", "Delete", "Alter", "AlterConfigs"),
    ):
        if may(copy, "east.orders", who, host, operation):
            assert may(there, "orders", who, host, operation), (who, host, operation)
