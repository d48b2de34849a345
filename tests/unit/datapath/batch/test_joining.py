"""The C helper's joined batches are sometimes compared with their sources before they are sent."""

import ctypes

import pytest
from support.join_helper import BrokenHelper, compiled
from support.stored import content, log_batch, sealed

from headrace.datapath import chunk
from headrace.datapath.chunk import Joiner, Memory, Misjoined
from headrace.kafka.wire import Batch, Buffers, StoredRecord, stored_records
from headrace.kafka.wire.stamp import Helper


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.memory = Memory()
        self.helper: Helper = compiled()
        self.joiner = Joiner(Buffers(1 << 20), self.memory, self.clock, lambda: self.helper)
        self.compared = 0
        monkeypatch.setattr(chunk, "stored_records", self._stored_records)

    def _stored_records(self, batch: Batch) -> list[StoredRecord]:
        self.compared += 1
        return list(stored_records(batch))

    def use(self, helper: Helper) -> None:
        self.helper = helper

    def join(self, *, check: bool = True) -> list[StoredRecord]:
        """Join three batches, and release them."""
        run = self.joiner.join(log(), 0, 1 << 20, check=check)
        assert run is not None
        assert (run.batches, run.size) == (3, len(log()))
        found = [one._replace(content=bytes(one.content)) for one in stored_records(run.batch)]
        run.release()
        return found


def records(first: int) -> list[StoredRecord]:
    return [StoredRecord(first + n, 5 + n, content(b"k", b"value")) for n in range(3)]


def log() -> memoryview:
    return memoryview(bytearray().join(log_batch(records(3 * n)) for n in range(3)))


ALL = [*records(0), *records(3), *records(6)]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_the_first_and_then_one_a_second_is_compared(scene: Scene) -> None:
    scene.use(compiled())
    compared = []
    for passed_s in (0.0, 0.5, 0.4, 0.2, 0.5):
        scene.clock.now_s += passed_s
        before = scene.compared
        assert scene.join() == ALL
        compared.append(scene.compared > before)
    assert compared == [True, False, False, True, False]


def test_nothing_is_compared_where_nobody_asks_for_it(scene: Scene) -> None:
    scene.use(compiled())
    assert scene.join(check=False) == ALL
    assert not scene.compared


def wrong_record(*arguments: int) -> int:
    return BrokenHelper()(*arguments)


def wrong_newest(*arguments: int) -> int:
    """Join batches with a wrong timestamp for the whole batch."""
    size, out = compiled()(*arguments), arguments[5]
    ctypes.c_uint8.from_address(out + 42).value += 1
    return sealed_at(out, size)


def wrong_size(*arguments: int) -> int:
    """Join batches without the end of the last record."""
    return sealed_at(arguments[5], compiled()(*arguments) - 1)


def wrong_epoch(*arguments: int) -> int:
    size, out = compiled()(*arguments), arguments[5]
    ctypes.c_uint8.from_address(out + 15).value += 1
    return size


def too_many_batches(*arguments: int) -> int:
    size = compiled()(*arguments)
    ctypes.c_int64.from_address(arguments[7]).value += 1
    return size


def too_few_bytes(*arguments: int) -> int:
    """Report fewer bytes than were joined, so that the next bytes would be copied twice."""
    size = compiled()(*arguments)
    ctypes.c_int64.from_address(arguments[7] + 8).value -= 1
    return size


def nothing(*arguments: int) -> int:
    """Report that nothing was joined, which would be repeated forever."""
    size = compiled()(*arguments)
    ctypes.c_int64.from_address(arguments[7] + 8).value = 0
    return size


def sealed_at(out: int, size: int) -> int:
    """Write a matching checksum, and return ``size``."""
    data = bytearray(ctypes.string_at(out, size))
    ctypes.memmove(out, bytes(sealed(data)), size)
    return size


WRONG = [
    wrong_record,
    wrong_newest,
    wrong_size,
    wrong_epoch,
    too_many_batches,
    too_few_bytes,
    nothing,
]


@pytest.mark.parametrize("helper", WRONG)
def test_a_helper_that_was_wrong_once_is_not_used_again(scene: Scene, helper: Helper) -> None:
    scene.use(helper)
    with pytest.raises(Misjoined):
        scene.join()
    assert scene.joiner.helper is None
    assert scene.joiner.join(log(), 0, 1 << 20, check=True) is None
    assert scene.memory.held_bytes == 0


def test_one_that_takes_nothing_is_found_at_once(scene: Scene) -> None:
    scene.use(nothing)
    with pytest.raises(Misjoined):
        scene.join(check=False)


def test_one_that_goes_wrong_later_is_found_within_a_second(scene: Scene) -> None:
    scene.use(compiled())
    assert scene.join() == ALL
    scene.use(wrong_record)
    assert scene.join() != ALL
    scene.clock.now_s += 1.0
    with pytest.raises(Misjoined):
        scene.join()
