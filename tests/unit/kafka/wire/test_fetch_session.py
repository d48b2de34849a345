"""Content of each request in a fetch session."""

from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.kafka.wire import FetchPosition, FetchResponse, FetchSession, Session
from headrace.kafka.wire.fetch import Forgotten
from headrace.kafka.wire.frames import Buffers, Frame

ORDERS, USERS = UUID(int=7), UUID(int=8)


def wanted(topic_id: UUID = ORDERS, partition: int = 0, offset: int = 0) -> FetchPosition:
    return FetchPosition(topic_id, partition, offset, 1 << 20)


def response(session_id: int = 5, error: ErrorCode = ErrorCode.none) -> FetchResponse:
    return FetchResponse(0, error, session_id, [], Frame(Buffers(), bytearray(), 0))


def opened() -> FetchSession[str]:
    session: FetchSession[str] = FetchSession()
    session.begin({"a": wanted(), "b": wanted(partition=1)})
    assert session.answered(response())
    return session


def test_the_first_request_is_a_full_one() -> None:
    session: FetchSession[str] = FetchSession()
    both = {"a": wanted(), "b": wanted(partition=1)}

    assert session.begin(both) == (list(both.values()), Session(0, 0))


def test_later_requests_name_what_has_changed() -> None:
    session = opened()
    moved = wanted(offset=9)

    assert session.begin({"a": moved, "b": wanted(partition=1)}) == ([moved], Session(5, 1))
    assert session.answered(response())
    assert session.begin({"a": moved, "b": wanted(partition=1)}) == ([], Session(5, 2))


def test_what_is_not_wanted_is_forgotten_and_what_is_new_is_added() -> None:
    session = opened()
    new = wanted(USERS)

    told, head = session.begin({"a": wanted(), "c": new})

    assert told == [new]
    assert head == Session(5, 1, (Forgotten(ORDERS, "", [1]),))


def test_a_topic_that_was_created_again_replaces_the_old_one() -> None:
    session = opened()
    again = wanted(USERS)

    told, head = session.begin({"a": again, "b": wanted(partition=1)})

    assert told == [again]
    assert head == Session(5, 1, (Forgotten(ORDERS, "", [0]),))


def test_an_unknown_session_is_opened_again_without_its_id() -> None:
    session = opened()
    session.begin({"a": wanted()})

    assert not session.answered(response(0, ErrorCode.fetch_session_id_not_found))
    assert session.begin({"a": wanted()}) == ([wanted()], Session(0, 0))


def test_a_wrong_epoch_replaces_the_session() -> None:
    session = opened()
    for code in (ErrorCode.invalid_fetch_session_epoch, ErrorCode.fetch_session_topic_id_error):
        session.begin({"a": wanted()})
        assert not session.answered(response(0, code))
        assert session.begin({"a": wanted()}) == ([wanted()], Session(5, 0))


def test_a_lost_request_replaces_the_session() -> None:
    session = opened()
    session.begin({"a": wanted(offset=3)})
    session.lost()

    assert session.begin({"a": wanted()}) == ([wanted()], Session(5, 0))


def test_a_broker_without_room_for_a_session_gets_full_requests() -> None:
    session: FetchSession[str] = FetchSession()
    for _ in range(2):
        assert session.begin({"a": wanted()}) == ([wanted()], Session(0, 0))
        assert session.answered(response(0))


def test_a_broker_may_end_a_session() -> None:
    session = opened()
    session.begin({"a": wanted()})
    assert session.answered(response(0))

    assert session.begin({"a": wanted()}) == ([wanted()], Session(0, 0))


def test_a_session_of_topics_without_ids_names_them() -> None:
    session: FetchSession[str] = FetchSession()
    named = FetchPosition(None, 0, 0, 1 << 20, topic="orders")
    session.begin({"a": named, "b": wanted()})
    session.answered(response())

    told, head = session.begin({"b": wanted()})

    assert told == []
    assert head == Session(5, 1, (Forgotten(None, "orders", [0]),), named=True)
