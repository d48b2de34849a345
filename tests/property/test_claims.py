"""Claims of one partition by owners that start, freeze and crash in every order.

The product decides which owner is fenced (``writers_after``). The owner's steps mirror
``connect/takeover/fenced.py``. Requests arrive at any later time, even after their sender's end.
Progress is not fenced: progress stored by an earlier owner may arrive after a later claim.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from support.explicit_state import explore

from headrace.replication.progress import OwnerProducer, Progress, Writers, writers_after


class Owner(NamedTuple):
    writer: OwnerProducer
    epoch: int
    stage: str = "claiming"
    """One of claiming, checking, fencing, comparing, checking again, opening, open."""
    fencing: tuple[OwnerProducer, ...] = ()
    source_offset: int = 0
    target_offset: int = 0
    stored: int = 0
    sent: bool = False

    @property
    def name(self) -> str:
        return self.writer.transactional_id

    def progress(self) -> Progress:
        fencing = self.fencing if self.stage == "claiming" else ()
        return Progress(
            "s", self.source_offset, 0, "t", self.target_offset, self.epoch, self.name,
            writer=self.writer, fencing=fencing,
        )  # fmt: skip


class Append(NamedTuple):
    writer: OwnerProducer
    record: int


class State(NamedTuple):
    owners: tuple[Owner | None, ...]
    starts: int
    crashes: int
    log: tuple[Progress, ...] = ()
    data: tuple[Append, ...] = ()
    fenced: frozenset[OwnerProducer] = frozenset()
    requests: frozenset[Append | Progress] = frozenset()

    def having(self, place: int, owner: Owner | None) -> "State":
        owners = (*self.owners[:place], owner, *self.owners[place + 1 :])
        return self._replace(owners=owners)

    def send(self, request: Append | Progress) -> "State":
        return self._replace(requests=self.requests | {request})


def violation(state: State) -> str:
    records = [one.record for one in state.data]
    for record in records:
        if records.count(record) > 1:
            return f"record {record} is doubled"
    return "" if records == sorted(records) else "a record is missing"


@dataclass(frozen=True)
class Model:
    records: int = 2
    starts: int = 3
    crashes: int = 1

    def initial(self) -> State:
        return State((None, None), self.starts, self.crashes)

    def read(self, state: State) -> tuple[Progress | None, Writers]:
        """Return the valid progress and the allowed writers according to the progress log."""
        stored: Progress | None = None
        writers: Writers = {}
        for progress in state.log:
            writers = self.writers_after(writers, stored, progress)
            if stored is None or progress.epoch >= stored.epoch:
                stored = progress
        return stored, writers

    def writers_after(
        self, writers: Writers, stored: Progress | None, progress: Progress
    ) -> Writers:
        return writers_after(writers, stored, progress)

    def checked(self, owner: Owner, stored: Progress | None, writers: Writers) -> Owner | None:
        """Return the owner after its claim: it stops, claims again, or fences."""
        if stored is None or stored.owner != owner.name:
            return None
        known = {one.id for one in (*owner.fencing, owner.writer)}
        others = tuple(writer for id_, writer in sorted(writers.items()) if id_ not in known)
        if others:
            return owner._replace(stage="claiming", fencing=(*owner.fencing, *others))
        return owner._replace(stage="fencing")

    def successors(self, state: State) -> Iterator[tuple[str, State]]:
        for place, owner in enumerate(state.owners):
            if owner is None:
                if state.starts:
                    yield "starts", self._started(state, place)
                continue
            for event, following in self._steps(state, place, owner):
                yield f"{owner.name} {event}", following
            if state.crashes:
                crashed = state._replace(crashes=state.crashes - 1)
                yield f"{owner.name} crashes", crashed.having(place, None)
        for request in sorted(state.requests, key=str):
            arrived = state._replace(requests=state.requests - {request})
            yield f"{request} arrives", _arrived(arrived, request)

    def _started(self, state: State, place: int) -> State:
        stored, writers = self.read(state)
        number = self.starts - state.starts
        owner = Owner(
            OwnerProducer(f"owner-{number}", number, 0), stored.epoch + 1 if stored else 1
        )
        fencing = tuple(writer for _, writer in sorted(writers.items()))
        if stored is not None:
            source, target = stored.source_offset, stored.target_offset
            owner = owner._replace(source_offset=source, target_offset=target)
        owner = owner._replace(fencing=fencing)
        started = state._replace(starts=state.starts - 1)
        return started.having(place, owner).send(owner.progress())

    def _claimed(self, state: State, place: int, owner: Owner) -> State:
        """Return the state after an owner has compared the tail and stored its end.

        An owner that was replaced stops and stores nothing, because the compared tail may be a
        later owner's.
        """
        stored, _ = self.read(state)
        if self.replaced(owner, stored):
            return state.having(place, None)
        after = owner._replace(stage="opening")
        return state.having(place, after).send(after.progress())

    def replaced(self, owner: Owner, stored: Progress | None) -> bool:
        return stored is None or stored.owner != owner.name

    def _steps(self, state: State, place: int, owner: Owner) -> Iterator[tuple[str, State]]:
        match owner.stage:
            case "checking":
                after = self.checked(owner, *self.read(state))
                checked = state.having(place, after)
                if after is not None and after.stage == "claiming":
                    checked = checked.send(after.progress())
                yield f"reads progress; next: {after and after.stage}", checked
            case "fencing":
                fenced = state._replace(fenced=state.fenced.union(owner.fencing))
                yield "fences", fenced.having(place, owner._replace(stage="comparing"))
            case "comparing":
                after = _compared(owner, state.data)._replace(stage="checking again")
                yield f"resumes at {after.source_offset}", state.having(place, after)
            case "checking again":
                yield "reads progress again", self._claimed(state, place, owner)
            case "open":
                if not owner.sent and owner.source_offset < self.records:
                    sent = state.having(place, owner._replace(sent=True))
                    yield "sends", sent.send(Append(owner.writer, owner.source_offset))
                if owner.source_offset > owner.stored:
                    after = owner._replace(stored=owner.source_offset)
                    yield "stores progress", state.having(place, after).send(after.progress())


def _compared(owner: Owner, data: tuple[Append, ...]) -> Owner:
    """Return the owner after its comparison.

    The tail agrees if known writers wrote all of it, in order.
    """
    tail = data[owner.target_offset :]
    known = {*owner.fencing, owner.writer}
    at = owner.source_offset
    agrees = [one.record for one in tail] == list(range(at, at + len(tail)))
    end = at + len(tail) if agrees and all(one.writer in known for one in tail) else at
    return owner._replace(source_offset=end, target_offset=len(data), stored=end)


def _arrived(state: State, request: Append | Progress) -> State:
    for place, owner in enumerate(state.owners):
        if owner is None or owner.writer != request.writer:
            continue
        if isinstance(request, Append):
            after = owner._replace(
                source_offset=request.record + 1, target_offset=len(state.data) + 1, sent=False
            )
            state = state.having(place, None if owner.writer in state.fenced else after)
        elif owner.stage == "claiming":
            state = state.having(place, owner._replace(stage="checking"))
        elif owner.stage == "opening":
            state = state.having(place, owner._replace(stage="open"))
    if isinstance(request, Progress):
        return state._replace(log=(*state.log, request))
    if request.writer in state.fenced:
        return state
    return state._replace(data=(*state.data, request))


@pytest.mark.parametrize(
    "model",
    [Model(2, 2, 2), Model(1, 3, 0), pytest.param(Model(1, 3, 1), marks=pytest.mark.long)],
)
def test_no_record_is_doubled_or_missing(model: Model) -> None:
    found = explore(model.initial(), model.successors, violation)
    assert not found.violation, str(found)
    assert found.states > 1_000, found.states


class NotReadBack(Model):
    """Model that does not see a claim in between."""

    def checked(self, owner: Owner, stored: Progress | None, writers: Writers) -> Owner | None:
        return owner._replace(stage="fencing")


class OnlyTheLast(Model):
    """Model that fences only the writer of the record that counts."""

    def writers_after(
        self, writers: Writers, stored: Progress | None, progress: Progress
    ) -> Writers:
        if stored is not None and progress.epoch < stored.epoch:
            return writers
        return {progress.writer.id: progress.writer} if progress.writer else {}


class ForgetsBeforeItFences(Model):
    """Model whose claim does not name the writers that are still to be fenced."""

    def writers_after(
        self, writers: Writers, stored: Progress | None, progress: Progress
    ) -> Writers:
        return {progress.writer.id: progress.writer} if progress.writer else {}


class NotReadAgain(Model):
    """Model that accepts a compared tail written by a later owner of the same epoch."""

    def replaced(self, owner: Owner, stored: Progress | None) -> bool:
        return False


@pytest.mark.parametrize(
    "model",
    [
        NotReadBack(1, 2, 1),
        OnlyTheLast(1, 3, 0),
        ForgetsBeforeItFences(1, 3, 0),
        NotReadAgain(1, 3, 0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_broken_rule_is_found(model: Model) -> None:
    found = explore(model.initial(), model.successors, violation)
    assert found.violation == "record 0 is doubled", str(found)
