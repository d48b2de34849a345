"""Transactions that stay open on the source, as a task reports them."""

import pytest
from support.lags import lag_of
from support.source_tasks import COPY, P0, P1, TOPIC, Scene

from headrace.api import ConditionType, TopicPartition, find_condition
from headrace.kafka import Position


def begin(scene: Scene) -> None:
    """Begin a transaction after one committed record of P0.

    A record of another producer waits behind the transaction.
    """
    scene.source.append(TOPIC, b"a", b"in transaction", b"behind")
    scene.log(P0).open_from = 1
    scene.source.append(TOPIC, b"x", partition=1)
    scene.start()
    scene.settle()
    assert scene.copies() == [b"a"]


def last(scene: Scene, seconds: float) -> None:
    """Let the time elapse, with requests to the source when they are due."""
    for _ in range(int(seconds / 0.3)):
        scene.observe()
        scene.check_pool.run()


def message(scene: Scene) -> str:
    found = find_condition(scene.task.status.conditions, ConditionType.TRANSACTION_HANGING)
    return found.message if found else ""


def test_a_transaction_that_stays_open_is_a_condition_until_it_ends(scene: Scene) -> None:
    begin(scene)
    last(scene, 60)
    assert message(scene) == "", "its producer may take that long"
    last(scene, 20)
    assert "transactions on east stay open" in message(scene)
    assert "orders-0 from offset 1 on, 2 offsets wait since 2023-11-14T22:3" in message(scene)
    assert str(P1) not in message(scene)
    said = message(scene)
    last(scene, 60)
    assert message(scene) == said, "the time does not move, nor is there more"
    scene.log(P0).open_from = None
    scene.settle()
    assert (message(scene), scene.copies()) == ("", [b"a", b"in transaction", b"behind"])


def test_a_partition_that_moves_on_from_transaction_to_transaction_does_not_hang(
    scene: Scene,
) -> None:
    begin(scene)
    for _ in range(6):
        last(scene, 50)
        open_from = scene.log(P0).open_from
        assert open_from is not None
        scene.source.append(TOPIC, b"more")
        scene.log(P0).open_from = open_from + 1
        scene.settle()
        assert message(scene) == ""


def test_a_target_that_takes_nothing_is_no_transaction(scene: Scene) -> None:
    scene.source.append(TOPIC, b"a")
    scene.start()
    scene.hold_back(COPY)
    scene.run_once()
    last(scene, 100)
    assert lag_of(scene.task).records == 1
    assert message(scene) == ""


def test_the_source_is_asked_only_where_a_position_does_not_move(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[TopicPartition]] = []

    def known_ends(partitions: set[TopicPartition], _: Position) -> dict[TopicPartition, int]:
        asked.append(partitions)
        return {}

    monkeypatch.setattr(scene.source, "known_ends", known_ends)
    begin(scene)
    last(scene, 60)
    assert asked == []
    last(scene, 60)
    assert asked == [{P0}, {P0}]


def test_a_source_that_does_not_answer_is_asked_again(scene: Scene) -> None:
    begin(scene)
    scene.source.away = True
    last(scene, 80)
    assert message(scene) == ""
    scene.source.away = False
    last(scene, 40)
    assert "orders-0 from offset 1" in message(scene)
