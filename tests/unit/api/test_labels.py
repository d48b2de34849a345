"""Names as values of labels."""

import re

from headrace.api.labels import label_value


def test_a_good_name_stays() -> None:
    assert label_value("orders.v2") == "orders.v2"
    assert label_value("a" * 63) == "a" * 63


def test_a_kafka_cluster_id_may_begin_and_end_oddly() -> None:
    assert re.fullmatch("abc-[0-9a-f]{8}", label_value("-abc_"))
    assert label_value("-abc_") != label_value("abc-")
