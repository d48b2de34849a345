"""The readiness loop: timers, wake-ups, coroutines."""

import socket
import threading

import pytest
from support.patience import WITHIN_S

from headrace.errors import GaveUp
from headrace.kafka.wire.loop import READ, EventLoop, Reply, start


def test_timers_come_in_their_order_unless_cancelled(loop: EventLoop) -> None:
    came: list[str] = []
    last: Reply[None] = Reply()
    loop.call_later(0.02, lambda: last.succeed(None))
    loop.call_later(0.01, lambda: came.append("second"))
    loop.call_later(0.005, lambda: came.append("never")).cancel()
    loop.call_later(0, lambda: came.append("first"))

    loop.wait(last, WITHIN_S)

    assert came == ["first", "second"]


def test_a_wake_up_ends_the_rest(loop: EventLoop) -> None:
    for _ in range(3):  # and so does the next one
        thread = threading.Timer(0.01, loop.wake)
        thread.start()
        assert loop.run_once(WITHIN_S) > 0
        thread.join()


def test_calls_from_threads_are_made_in_the_loop(loop: EventLoop) -> None:
    made: list[int] = []
    done: Reply[None] = Reply()

    def from_thread() -> None:
        for number in range(1000):
            loop.call_from_thread(lambda number=number: made.append(number))  # type: ignore[misc]
        loop.call_from_thread(lambda: done.succeed(None))

    thread = threading.Thread(target=from_thread)
    thread.start()
    loop.wait(done, WITHIN_S)
    thread.join()

    assert made == list(range(1000))


def test_work_in_the_thread_answers_or_fails(loop: EventLoop) -> None:
    assert loop.wait(loop.in_thread(threading.get_ident), WITHIN_S) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        loop.wait(loop.in_thread(lambda: 1 // 0), WITHIN_S)


def test_a_coroutine_goes_on_when_its_reply_is_there(loop: EventLoop) -> None:
    first: Reply[int] = Reply()

    async def adding() -> int:
        await loop.sleep(0.001)
        return await first + 1

    outcome = start(adding())
    loop.call_later(0.005, lambda: first.succeed(41))

    assert loop.wait(outcome, WITHIN_S) == 42


def test_a_coroutine_that_fails_fails_its_reply(loop: EventLoop) -> None:
    async def failing() -> None:
        await loop.sleep(0.001)
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        loop.wait(start(failing()), WITHIN_S)


def test_waiting_ends_in_time(loop: EventLoop) -> None:
    with pytest.raises(GaveUp, match=r"no answer within 0.01 s"):
        loop.wait(Reply(), 0.01)


def test_only_the_first_outcome_counts() -> None:
    reply: Reply[int] = Reply()
    with pytest.raises(GaveUp):
        reply.result()
    reply.succeed(1)
    reply.fail(ValueError())
    reply.succeed(2)

    assert reply.result() == 1


def test_a_socket_that_was_closed_by_what_came_before_it_in_the_same_round(loop: EventLoop) -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    (first, _), (second, _) = pairs
    came: list[socket.socket] = []

    def ready(sock: socket.socket, other: socket.socket) -> None:
        came.append(sock)
        for one in (sock, other):
            loop.forget(one)
            one.close()

    loop.watch(first, READ, lambda _: ready(first, second))
    loop.watch(second, READ, lambda _: ready(second, first))
    for _, peer in pairs:
        peer.send(b"x")
    loop.run_once(1.0)
    assert len(came) == 1
    for _, peer in pairs:
        peer.close()
