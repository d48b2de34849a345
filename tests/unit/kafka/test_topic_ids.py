"""Topic ids, which clusters have since Kafka 2.8."""

import pytest

from headrace.kafka import NO_TOPIC_ID, replaced

ONE, TWO = "bm90IG9uZSBidXQgdHdv", "dHdvIGFuZCBub3Qgb25l"


@pytest.mark.parametrize(
    ("known", "found", "is_replaced"),
    [
        (ONE, ONE, False),
        (ONE, TWO, True),
        (NO_TOPIC_ID, NO_TOPIC_ID, False),
        (NO_TOPIC_ID, ONE, False),
        (ONE, NO_TOPIC_ID, False),
    ],
)
def test_only_two_ids_show_that_a_topic_was_replaced(
    known: str, found: str, is_replaced: bool
) -> None:
    assert replaced(known, found) is is_replaced
