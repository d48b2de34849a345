"""A connection to brokers that answer correctly, wrongly, late, in part, or not at all."""

import socket
import struct
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.describe_producers.v0 import DescribeProducersRequest, DescribeProducersResponse
from kio.schema.end_txn.v3 import EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta
from structlog.testing import capture_logs
from support.fake_broker import (
    ACCEPTED,
    END_TXN,
    Raw,
    Request,
    Serve,
    Silence,
    connect,
    end_txn,
    framed,
    served,
)
from support.patience import WITHIN_S

from headrace.api import ClusterAccess, ClusterSpec
from headrace.errors import Unreachable
from headrace.kafka.wire.errors import ConnectionLost, Garbled, UnsupportedBroker
from headrace.kafka.wire.frames import Buffers
from headrace.kafka.wire.handshake import ConnectionSettings, Opener, Server, keep_alive
from headrace.kafka.wire.loop import EventLoop, start
from headrace.kafka.wire.protocol import call
from headrace.kafka.wire.transport import ClientSecurity


def test_requests_are_answered_in_their_order(loop: EventLoop, serve: Serve) -> None:
    broker = serve({END_TXN: lambda _: ACCEPTED})
    connection = connect(loop, broker, max_in_flight=3)
    order: list[int] = []

    replies = [connection.send(end_txn(str(number))) for number in range(20)]
    for number, reply in enumerate(replies):
        reply.then(lambda _, number=number: order.append(number))  # type: ignore[misc]

    assert loop.wait(replies[-1], WITHIN_S) == ACCEPTED
    assert order == list(range(20))
    names = [message.transactional_id for message in broker.requests(END_TXN)]
    assert names == [str(number) for number in range(20)]
    assert connection.load == 0


def test_no_more_requests_are_begun_than_may_be_in_flight(loop: EventLoop, serve: Serve) -> None:
    broker = serve({END_TXN: lambda _: Silence()})
    connection = connect(loop, broker, max_in_flight=2)

    for number in range(5):
        connection.send(end_txn(str(number)))
    with broker.came:
        assert broker.came.wait_for(lambda: len(broker.seen) == 2, WITHIN_S)
    loop.run_once(0)

    assert len(broker.seen) == 2
    assert connection.load == 5


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda request: Raw(framed(request, ACCEPTED, 99)), "correlation id 99"),
        (lambda request: Raw(struct.pack(">i", 2**31 - 1)), "claims 2147483647 bytes"),
        (lambda request: Raw(struct.pack(">i", -5)), "claims -5 bytes"),
        (lambda request: Raw(framed(request, b"\0")), "cannot be read"),
        (lambda request: Raw(framed(request, b"\0" * 40)), "bytes too many"),
        (lambda request: Raw(b"HTTP/1.1 400 Bad Request"), "claims 1213486160 bytes"),
    ],
)
def test_an_answer_that_breaks_the_protocol_ends_the_connection(
    loop: EventLoop, serve: Serve, answer: Callable[[Request], Raw], said: str
) -> None:
    connection = connect(loop, serve({END_TXN: answer}))
    first, second = connection.send(end_txn()), connection.send(end_txn())

    with pytest.raises(Garbled, match=said) as raised:
        loop.wait(first, WITHIN_S)

    assert f"{connection.server}: " in str(raised.value)
    assert raised.value.may_have_arrived
    assert isinstance(connection.closed_by, Garbled)
    with pytest.raises(ConnectionLost):
        second.result()
    with pytest.raises(ConnectionLost) as later:
        connection.send(end_txn()).result()
    assert not later.value.may_have_arrived


def test_an_error_code_that_is_newer_than_this_client_is_logged_with_its_number(
    loop: EventLoop, serve: Serve
) -> None:
    newer = b"\0\0\0\0" + struct.pack(">h", 22_222) + b"\0"
    connection = connect(loop, serve({END_TXN: lambda _: newer}))

    with capture_logs() as logged:
        answers = [loop.wait(connection.send(end_txn()), WITHIN_S) for _ in range(2)]

    assert {answer.error_code for answer in answers} == {ErrorCode.unknown_server_error}
    assert [event["code"] for event in logged] == [22_222], "once"


@pytest.mark.parametrize("cut", [1, 4, 6, 9])
def test_a_connection_that_ends_in_a_response_is_lost(
    loop: EventLoop, serve: Serve, cut: int
) -> None:
    broker = serve({END_TXN: lambda request: Raw(framed(request, ACCEPTED)[:cut], close=True)})
    connection = connect(loop, broker, max_in_flight=1)
    begun, waiting = connection.send(end_txn()), connection.send(end_txn())

    with pytest.raises(ConnectionLost, match="in mid-response") as raised:
        loop.wait(begun, WITHIN_S)

    assert raised.value.may_have_arrived
    with pytest.raises(ConnectionLost) as unsent:
        waiting.result()
    assert not unsent.value.may_have_arrived


def test_a_silent_broker_is_given_up(loop: EventLoop, serve: Serve) -> None:
    connection = connect(loop, serve({END_TXN: lambda _: Silence()}), max_in_flight=1)
    begun = connection.send(end_txn(), timeout_s=0.05)
    waiting = connection.send(end_txn(), timeout_s=30)

    with pytest.raises(ConnectionLost, match="no answer to end_txn in time") as raised:
        loop.wait(begun, WITHIN_S)

    assert raised.value.may_have_arrived
    with pytest.raises(ConnectionLost):
        waiting.result()
    assert connection.closed_by is not None


def test_an_idle_connection_without_an_answer_is_given_up_before_a_request_is_sent(
    loop: EventLoop, serve: Serve
) -> None:
    answers = iter([served()])
    broker = serve({END_TXN: lambda _: ACCEPTED, 18: lambda _: next(answers, Silence())})
    connection = connect(loop, broker, probe_after_s=0.0, probe_timeout_s=0.1)
    loop.wait(loop.sleep(0.01), WITHIN_S)

    with pytest.raises(ConnectionLost, match="no answer to api_versions in time") as raised:
        loop.wait(connection.send(end_txn()), WITHIN_S)

    assert not raised.value.may_have_arrived
    assert broker.requests(END_TXN) == []


def test_requests_on_an_idle_connection_follow_the_answer_to_one_probe(
    loop: EventLoop, serve: Serve
) -> None:
    probes: list[Request] = []
    answers = [served(), served()]

    def versions(request: Request) -> Any:
        probes.append(request)
        return answers.pop()

    broker = serve({END_TXN: lambda _: ACCEPTED, 18: versions})
    connection = connect(loop, broker, probe_after_s=0.0)
    loop.wait(loop.sleep(0.01), WITHIN_S)

    replies = [connection.send(end_txn(str(number))) for number in range(3)]

    assert [loop.wait(reply, WITHIN_S) for reply in replies] == [ACCEPTED] * 3
    assert len(probes) == 2, "one of them when the connection was opened"


def test_a_connection_in_use_is_not_probed(loop: EventLoop, serve: Serve) -> None:
    answers = iter([served()])
    broker = serve({END_TXN: lambda _: ACCEPTED, 18: lambda _: next(answers, Silence())})
    connection = connect(loop, broker)

    for _ in range(3):
        assert loop.wait(connection.send(end_txn()), WITHIN_S) == ACCEPTED


def test_an_answer_that_still_arrives_is_waited_for(loop: EventLoop, serve: Serve) -> None:
    whole: list[bytes] = []

    def answer(request: Request) -> Raw:
        whole.append(framed(request, ACCEPTED))
        return Raw(whole[0][:9] if len(whole) == 1 else whole[0][9:] + whole[1])

    connection = connect(loop, serve({END_TXN: answer}), max_in_flight=2)
    slow = connection.send(end_txn(), timeout_s=0.1)
    loop.wait(loop.sleep(0.3), WITHIN_S)
    assert not slow.done

    connection.send(end_txn())

    assert loop.wait(slow, WITHIN_S) == ACCEPTED


def test_the_system_looks_for_dropped_connections() -> None:
    with socket.socket() as sock:
        keep_alive(sock)

        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        tcp = socket.IPPROTO_TCP
        assert sock.getsockopt(tcp, socket.TCP_KEEPIDLE) == 10
        assert sock.getsockopt(tcp, socket.TCP_KEEPINTVL) == 3
        assert sock.getsockopt(tcp, socket.TCP_KEEPCNT) == 3
        assert sock.getsockopt(tcp, socket.TCP_USER_TIMEOUT) == 19_000


def test_a_request_whose_turn_never_comes_fails_alone(loop: EventLoop, serve: Serve) -> None:
    # No timer of the connection's opening, which is due in 60 s, may end the wait.
    broker = serve({END_TXN: lambda _: Silence()})
    connection = connect(loop, broker, max_in_flight=1, connect_timeout_s=60.0)
    begun = connection.send(end_txn(), timeout_s=30)
    waiting = connection.send(end_txn(), timeout_s=0.05)

    with pytest.raises(ConnectionLost, match="could not be sent") as raised:
        loop.wait(waiting, WITHIN_S)

    assert not raised.value.may_have_arrived
    assert connection.closed_by is None
    assert not begun.done


def test_a_throttle_time_is_obeyed(loop: EventLoop, serve: Serve) -> None:
    throttled = EndTxnResponse(
        throttle_time=i32Timedelta.parse(timedelta(seconds=0.3)), error_code=ErrorCode.none
    )
    arrivals: list[float] = []

    def answer(_: Request) -> EndTxnResponse:
        arrivals.append(time.monotonic())
        return throttled if len(arrivals) == 1 else ACCEPTED

    connection = connect(loop, serve({END_TXN: answer}))
    loop.wait(connection.send(end_txn()), WITHIN_S)

    loop.wait(connection.send(end_txn()), WITHIN_S)

    assert arrivals[1] - arrivals[0] > 0.29, "the throttle begins after the first arrival"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {1: (4, 10)},
            r"serves fetch in versions 4 to 10, and this client speaks 11 to 13: it takes Kafka "
            r"2\.4 or newer",
        ),
        ({0: (20, 25)}, r"serves produce in versions 20 to 25, .*: it takes a newer headrace"),
    ],
)
def test_a_broker_without_a_common_version_is_refused(
    loop: EventLoop, serve: Serve, changed: dict[int, tuple[int, int]], said: str
) -> None:
    with pytest.raises(UnsupportedBroker, match=said):
        connect(loop, serve({18: lambda _: served(changed)}))


def test_the_newest_common_version_is_spoken(loop: EventLoop, serve: Serve) -> None:
    for served_versions, spoken in (((0, 1), 1), ((0, 2), 2), ((0, 3), 3), ((2, 9), 3)):
        ranges = {END_TXN: served_versions}
        broker = serve({18: lambda _: served(ranges), END_TXN: lambda _: ACCEPTED})  # noqa: B023
        connection = connect(loop, broker)

        assert loop.wait(connection.send(end_txn()), WITHIN_S) == ACCEPTED
        assert broker.seen[-1].version == connection.version(END_TXN) == spoken


def test_a_request_that_a_broker_lacks_fails_alone(loop: EventLoop, serve: Serve) -> None:
    whole = served({END_TXN: (7, 8)})
    lacking = tuple(api for api in whole.api_keys if api.api_key != 61)
    answer = type(whole)(
        error_code=ErrorCode.none, api_keys=lacking, throttle_time=whole.throttle_time
    )
    connection = connect(loop, serve({18: lambda _: answer}))
    producers = call(DescribeProducersRequest(topics=()), DescribeProducersResponse)

    with pytest.raises(
        UnsupportedBroker,
        match=rf"{connection.server} does not serve describe_producers, .* Kafka 2\.8 or newer",
    ):
        connection.send(producers).result()
    with pytest.raises(UnsupportedBroker, match=r"serves end_txn in versions 7 to 8, .* 1 to 3"):
        connection.send(end_txn()).result()
    assert connection.closed_by is None
    assert connection.load == 0


def test_a_broker_that_answers_in_version_0_is_too_old(loop: EventLoop, serve: Serve) -> None:
    old = b"\0\x23" + struct.pack(">ihhh", 1, 18, 0, 2)

    with pytest.raises(UnsupportedBroker, match=r"is too old; .* 2\.4 or newer"):
        connect(loop, serve({18: lambda _: old}))


def test_a_listener_that_never_answers_is_unreachable(loop: EventLoop, serve: Serve) -> None:
    with pytest.raises(Unreachable, match="no answer to api_versions in time"):
        connect(loop, serve({18: lambda _: Silence()}), connect_timeout_s=0.2)


def test_a_closed_port_is_unreachable(loop: EventLoop, serve: Serve) -> None:
    broker = serve({})
    broker.close()

    with pytest.raises(Unreachable, match=rf"127.0.0.1:{broker.port} cannot be reached"):
        connect(loop, broker)


def test_a_name_without_an_address_is_unreachable(loop: EventLoop) -> None:
    spec = ClusterSpec(alias="east", bootstrap_servers="broker.invalid:9092")
    opener = Opener(loop, ClientSecurity(ClusterAccess(spec)), Buffers(), ConnectionSettings())

    with pytest.raises(Unreachable, match=r"the name broker\.invalid cannot be resolved"):
        loop.wait(start(opener.open(Server("broker.invalid", 9092))), WITHIN_S)


def test_closing_fails_what_is_unanswered(loop: EventLoop, serve: Serve) -> None:
    connection = connect(loop, serve({END_TXN: lambda _: Silence()}))
    reply = connection.send(end_txn())

    connection.close()

    with pytest.raises(ConnectionLost, match="closed by us") as raised:
        reply.result()
    assert raised.value.may_have_arrived
