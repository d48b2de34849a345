"""Model of owners that copy in transactions over data and progress, in every order of events.

The model has one task with one transactional id, a partition of data, a partition of progress and
the coordinator. Its markers reach each partition separately, and are lost if there is no leader
(KAFKA-20734), so that a *leftover* of a transaction stays open there. Owners crash, freeze while
another one takes over, and lose the coordinator's answers. The product's ``decided`` judges which
owner is committed. Appends are acknowledged at once. ``property.fencing`` has them in flight.

A test breaks each of these rules by overriding a method:

- Progress counts once it is committed.
- The tail of the target's data counts as far as it is committed.
- A fence closes data and progress.
- Before an abort's marker, including a fence's, a leftover below the stored position is committed.
  It is also committed before the next transaction.
- A commit without an answer is sent again, and never guessed.

This is the protocol of ``delivery.mode: ExactlyOnce``. The product takes over again where the
model's owner commits what its own last commit left open.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from headrace.replication.reconcile import Ended, TransactionalBatch, decided

DATA, PROGRESS = 0, 1
BOTH = frozenset({DATA, PROGRESS})
ID = 1


class Entry(NamedTuple):
    epoch: int
    content: int | tuple[int, int] | str
    """Source offset of data, next source and target offset of progress, ``commit`` or ``abort``."""

    @property
    def marker(self) -> bool:
        return isinstance(self.content, str)


Log = tuple[Entry, ...]


class Owner(NamedTuple):
    stage: str = "identify"
    epoch: int = -1
    stored: tuple[int, int] = (0, 0)
    """Next source and target offset, as read at first and then as last committed."""
    next: int = 0
    """Source offset to copy next."""


class State(NamedTuple):
    logs: tuple[Log, Log]
    leaders: frozenset[int]
    epoch: int
    """Last epoch that the coordinator assigned."""
    added: bool
    """Whether a transaction is open, over both partitions."""
    pending: frozenset[int]
    """Partitions that its last marker has not reached."""
    ending: str
    """Marker that ends the transaction."""
    owners: tuple[Owner | None, Owner | None]
    starts: int
    faults: int

    def having(self, place: int, owner: Owner | None) -> "State":
        return self._replace(
            owners=(owner, self.owners[1]) if not place else (self.owners[0], owner)
        )

    def fault(self) -> "State":
        return self._replace(faults=self.faults - 1)

    def appended(self, to: int, entry: Entry) -> "State":
        log = (*self.logs[to], entry)
        return self._replace(logs=(log, self.logs[1]) if to == DATA else (self.logs[0], log))

    def accepts(self, to: int, epoch: int) -> bool:
        return to in self.leaders and all(one.epoch <= epoch for one in self.logs[to])

    def ends(self, ending: str, partitions: frozenset[int]) -> "State":
        return self._replace(added=False, pending=partitions, ending=ending)


@cache
def committed(log: Log) -> Mapping[int, bool]:
    """Return whether each ended entry was committed, by offset."""
    entries = [
        Ended(offset, ID, one.content == "commit")
        if one.marker
        else TransactionalBatch(range(offset, offset + 1), ID)
        for offset, one in enumerate(log)
    ]
    return {one.offsets.start: one.committed for one in decided(entries)}


@cache
def stable_end(log: Log) -> int:
    ended = committed(log)
    open_ = (at for at, one in enumerate(log) if not one.marker and at not in ended)
    return next(open_, len(log))


Successors = Iterator[tuple[str, State]]


@dataclass(frozen=True)
class Model:
    records: int = 2
    starts: int = 3
    faults: int = 2

    def initial(self) -> State:
        nothing = frozenset[int]()
        return State(((), ()), BOTH, 0, False, nothing, "", (None, None), self.starts, self.faults)

    # Rules that a test breaks by overriding.

    def stored(self, log: Log) -> tuple[int, int]:
        ended = committed(log)
        counts = [one.content for at, one in enumerate(log) if ended.get(at)]
        last = counts[-1] if counts else (0, 0)
        assert isinstance(last, tuple)
        return last

    def copied(self, log: Log, since: int) -> int:
        return sum(at >= since for at, counts in committed(log).items() if counts)

    fenced = BOTH

    def leftover(self, state: State, stored: tuple[int, int]) -> bool:
        return stable_end(state.logs[DATA]) < stored[1]

    def all_ended(self, state: State) -> bool:
        """Return whether no leftover is open, which an owner checks before its next transaction."""
        return all(stable_end(log) == len(log) for log in state.logs)

    def unanswered(self, owner: Owner) -> Owner:
        """Return an owner that got no answer to its commit, and therefore sends it again."""
        return owner

    # Events.

    def successors(self, state: State) -> Successors:
        for place, (name, owner) in enumerate(zip("AB", state.owners, strict=True)):
            if owner is None:
                if state.starts:
                    started = state._replace(starts=state.starts - 1)
                    yield f"{name} starts", started.having(place, Owner())
                continue
            if state.faults:
                yield f"{name} crashes", state.having(place, None).fault()
            if owner.stage != "identify" and owner.epoch != state.epoch:
                yield f"{name} is answered 47", state.having(place, None)
            opened = owner.stage in {"run", "copy", "end"}
            steps = self._copying if opened else self._taking_over
            for event, following in steps(state, place, owner):
                yield f"{name} {event}", following
        for to in sorted(state.pending):
            left = state._replace(pending=state.pending - {to})
            if to in state.leaders:
                yield f"marker to {to}", left.appended(to, Entry(state.epoch, state.ending))
            else:
                yield f"marker to {to} is lost", left
        for to in sorted(BOTH - state.leaders):
            yield f"{to} has a leader", state._replace(leaders=state.leaders | {to})
        for to in sorted(state.leaders) if state.faults else ():
            yield f"{to} has no leader", state._replace(leaders=state.leaders - {to}).fault()

    def _taking_over(self, state: State, place: int, owner: Owner) -> Successors:
        data = state.logs[DATA]
        current = owner.epoch == state.epoch and not state.pending
        led = state.leaders == BOTH
        match owner.stage:
            case "identify" if not state.pending:
                raised = state._replace(epoch=state.epoch + 1)
                if state.added:
                    yield "makes the coordinator abort", raised.ends("abort", BOTH)
                else:
                    after = Owner("check", raised.epoch)
                    yield f"gets epoch {raised.epoch}", raised.having(place, after)
            case "check" if current and led:
                stored = self.stored(state.logs[PROGRESS])
                if self.leftover(state, stored):
                    yield "commits a leftover", state.ends("commit", frozenset({DATA}))
                else:
                    fence = state.ends("abort", self.fenced)
                    yield "fences", fence.having(place, owner._replace(stage="tail", stored=stored))
            case "tail" if current and led:
                if all(Entry(owner.epoch, "abort") in state.logs[to] for to in self.fenced):
                    source, target = owner.stored
                    copied = source + self.copied(data, target)
                    opened = owner._replace(stage="run", next=copied, stored=(copied, len(data)))
                    yield f"opens at {copied}", state.having(place, opened)
                else:
                    yield "sees no marker", state.having(place, Owner())

    def _copying(self, state: State, place: int, owner: Owner) -> Successors:
        data = state.logs[DATA]
        current = owner.epoch == state.epoch and not state.pending
        match owner.stage:
            case "run" if not state.added and current and state.leaders == BOTH:
                if not self.all_ended(state):
                    left = {to for to in BOTH if stable_end(state.logs[to]) < len(state.logs[to])}
                    yield "commits what is left", state.ends("commit", frozenset(left))
                elif owner.next < self.records:
                    begun = owner._replace(stage="copy")
                    yield "adds both", state._replace(added=True).having(place, begun)
            case "copy":
                # A frozen owner has not noticed its replacement.
                if owner.next < self.records and state.accepts(DATA, owner.epoch):
                    sent = state.appended(DATA, Entry(owner.epoch, owner.next))
                    after = owner._replace(next=owner.next + 1)
                    yield f"copies {owner.next}", sent.having(place, after)
                if owner.next > owner.stored[0] and state.accepts(PROGRESS, owner.epoch):
                    reached = owner.next, len(data)
                    sent = state.appended(PROGRESS, Entry(owner.epoch, reached))
                    yield "stores", sent.having(place, owner._replace(stage="end"))
            case "end" if owner.epoch == state.epoch:
                after = owner._replace(stage="run", stored=(owner.next, len(data)))
                if state.added:
                    ended = state.ends("commit", BOTH)
                    yield "commits", ended.having(place, after)
                    if state.faults:
                        guessed = self.unanswered(owner)
                        yield "gets no answer", ended.having(place, guessed).fault()
                elif not state.pending and state.ending == "commit":
                    yield "is told that it was committed", state.having(place, after)


def violation(state: State) -> str:
    """Return a violation unless a reader of committed records gets each record once, in order."""
    log = state.logs[DATA]
    end = stable_end(log)
    seen = [log[at].content for at, counts in sorted(committed(log).items()) if counts and at < end]
    return "" if seen == list(range(len(seen))) else f"read {seen}"
