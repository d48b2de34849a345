"""A model of two owners of one task: what may happen at the brokers, in every order.

The owners' decisions are ``TakeOver``, the protocol that the product follows for many partitions at
once, and the product's own ``reconcile``; how an owner appends (``Model._running``) mirrors what a
mover is to do. Modelled are:

- two partitions of the target, one of data and one of progress: their logs, epochs and sequences of
  producers. That of data also has a high watermark, an election that loses what lies above it, and
  times without a leader
- the coordinator of the one transactional id, whose markers reach each partition on their own, or
  are lost where there is no leader. The id may expire, except during a take-over: that has a
  deadline, far below the days that an id is kept
- requests to append that arrive at any later time, also after their owner's end; lost answers
- an owner has one record on its way, and stores progress now and then, or never; nothing happens to
  a frozen one for a while

``starts`` and ``faults`` bound it. A rule is broken by overriding a method.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from property.fencing.brokers import BOTH, DATA, PROGRESS, Coordinator, Entry
from property.fencing.state import Running, State, initial
from support.take_over_model import Claim, Identity, Stage, TakeOver

from headrace.replication.reconcile import (
    Dropped,
    Marker,
    Record,
    Resume,
    StoredProgress,
    reconcile,
)

Successors = Iterator[tuple[str, State]]


@dataclass(frozen=True)
class Model:
    records: int = 2
    """Total number of the source's records."""
    starts: int = 2
    """Number of starts of an owner that neither runs nor takes over."""
    faults: int = 1
    """Number of crashes, lost answers, elections and expirations."""

    def initial(self) -> State:
        return initial(self.starts, self.faults)

    def successors(self, state: State) -> Successors:
        for place, (name, owner) in enumerate(zip("AB", state.owners, strict=True)):
            if owner is None:
                owned = self._starting(state, place)
            elif isinstance(owner, Running):
                owned = self._running(state, place, owner)
            else:
                owned = self.taking_over(state, place, owner)
            for event, following in owned:
                yield f"{name} {event}", following
            if owner is not None and state.faults:
                yield f"{name} crashes", state.having(place, None).fault()
        yield from self._arrivals(state)
        yield from _elections(state)
        yield from _transactions(state)

    # Rules that a test breaks by overriding.

    def take_over(self, epoch: int) -> TakeOver:
        return TakeOver(epoch)

    def resent(self, owner: Running) -> Running:
        """Return the owner after an indefinite error, which it answers with the same bytes."""
        return owner

    def readable(self, state: State, name: str, own: Identity) -> bool:
        """Return whether a reader has the marker, or has waited long enough for it."""
        partition = state.partition(name)
        absent = name not in state.coordinator.pending
        return partition.leader and (partition.marked(own) or absent)

    def believed(self, owner: TakeOver) -> Collection[Marker]:
        """Markers that are taken for granted, and not read: none."""
        return ()

    def stored(self, owner: TakeOver) -> StoredProgress:
        return owner.stored

    # Transitions of the owners.

    def _starting(self, state: State, place: int) -> Successors:
        if state.starts:
            epoch = state.epoch + 1
            started = state._replace(epoch=epoch, starts=state.starts - 1)
            yield "starts", started.having(place, self.take_over(epoch))

    def _running(self, state: State, place: int, owner: Running) -> Successors:
        at = owner.source_offset
        entry = Entry(owner.identity, owner.sequence, at)
        if not owner.sent:
            if at < self.records:
                sent = state.having(place, owner._replace(sent=True))
                yield f"sends record {at}", sent.send(DATA, entry)
        else:
            if state.faults:
                again = self.resent(owner)
                sent = state.having(place, again)
                once_more = Entry(owner.identity, again.sequence, at)
                yield f"sends record {at} once more", sent.send(DATA, once_more).fault()
            if entry in state.data.visible:
                after = owner._replace(
                    source_offset=at + 1,
                    target_offset=state.data.visible.index(entry) + 1,
                    sequence=owner.sequence + 1,
                    sent=False,
                )
                yield f"receives the answer to record {at}", state.having(place, after)
        storing = any(
            to == PROGRESS and sent.identity == owner.identity for to, sent in state.requests
        )
        if at > owner.stored and not storing:
            id_, sequence = owner.identity.producer_id, owner.progress_sequence
            claim = Claim(owner.epoch, at, owner.target_offset, id_, owner.unfenced)
            after = owner._replace(stored=at, progress_sequence=sequence + 1)
            stored = state.having(place, after).send(
                PROGRESS, Entry(owner.identity, sequence, claim)
            )
            yield f"stores progress {at}", stored

    def taking_over(self, state: State, place: int, owner: TakeOver) -> Successors:
        coordinator = state.coordinator
        match owner.stage:
            case Stage.IDENTIFY:
                yield from _identify(state, place, owner)
            case Stage.ADD | Stage.END if (
                not coordinator.known or owner.own != coordinator.identity
            ):
                yield "is answered 47", state.having(place, owner.replaced())
            case Stage.ADD if not coordinator.pending:
                changed = state._replace(coordinator=coordinator._replace(added=True))
                yield "adds both partitions", changed.having(place, owner.added())
            case Stage.END:
                if coordinator.added:  # otherwise the answer to an earlier request was lost
                    coordinator = coordinator._replace(added=False, pending=BOTH)
                changed = state._replace(coordinator=coordinator)
                yield "ends the transaction", changed.having(place, owner.ended())
                if state.faults:
                    yield "gets no answer to EndTxn", changed.fault()
            case Stage.PROGRESS if self.readable(state, PROGRESS, owner.own):
                markers = [*state.progress.markers, *self.believed(owner)]
                read = owner.progress_read(state.progress.claims[-1], markers)
                yield f"reads progress; next: {read.stage}", state.having(place, read)
            case Stage.TAIL if self.readable(state, DATA, owner.own):
                resume = self._reconciled(state, owner)
                read = owner.reconciled(resume)
                event = f"reads the tail, {resume.outcome}; next: {read.stage}"
                yield event, state.having(place, read)
            case Stage.CLAIM:
                entry = Entry(owner.own, 0, owner.claim)
                if (PROGRESS, entry) not in state.requests:
                    yield "sends its claim", state.send(PROGRESS, entry)
            case Stage.OPEN:
                yield f"opens at {owner.claim.source_offset}", _opened(state, place, owner)
            case Stage.REPLACED:
                yield "stops", state.having(place, None)

    def _reconciled(self, state: State, owner: TakeOver) -> Resume:
        stored, log = self.stored(owner), state.data.visible
        target: list[Record | Dropped | Marker] = [
            _read(offset, entry)
            for offset, entry in enumerate(log)
            if offset >= stored.target_offset
        ]
        end = max(len(log), stored.target_offset)
        target += [marker._replace(offset=end) for marker in self.believed(owner)]
        source = map(_record, range(stored.source_offset, self.records))
        return reconcile(stored, target, source, owner.fences)

    # Transitions of the brokers.

    def _arrivals(self, state: State) -> Successors:
        for number, (to, entry) in enumerate(state.requests):
            partition = state.partition(to)
            repeated = number and state.requests[number - 1] == (to, entry)
            if not partition.leader or repeated:
                continue
            left = state.requests[:number] + state.requests[number + 1 :]
            arrived = state._replace(requests=left)
            answer = partition.answer(entry)
            if answer == "appended":
                arrived = arrived.appended(to, entry)
            event = f"{entry} arrives: {answer}"
            yield event, self._answered(arrived, to, entry, answer)
            if state.faults and to == PROGRESS:
                yield f"{event}, but that is not answered", arrived.fault()

    def _answered(self, state: State, to: str, entry: Entry, answer: str) -> State:
        for place, owner in enumerate(state.owners):
            if isinstance(owner, TakeOver):
                own = owner.identities[0] if owner.identities else None
                claims = owner.stage is Stage.CLAIM and to == PROGRESS
            else:
                own, claims = owner and owner.identity, False
            if own != entry.identity:
                continue
            if answer == "refused 47":
                return state.having(place, None)
            if answer == "refused 45" and isinstance(owner, Running):
                return state.having(place, TakeOver(owner.epoch, identities=(owner.identity,)))
            if claims and isinstance(owner, TakeOver):
                return state.having(place, owner.claimed())
        return state


def _identify(state: State, place: int, owner: TakeOver) -> Successors:
    coordinator = state.coordinator
    if coordinator.pending:
        return  # error 51, until markers are acknowledged
    if owner.identities and coordinator.known and owner.own != coordinator.identity:
        yield "is answered 47", state.having(place, owner.replaced())
        return
    identity = coordinator.next_identity
    if coordinator.added:
        aborting = state._replace(coordinator=Coordinator(identity, pending=BOTH))
        yield "makes the coordinator abort", aborting
        return
    changed = state._replace(coordinator=Coordinator(identity))
    yield f"gets {identity}", changed.having(place, owner.identified(identity))
    if state.faults:
        yield "gets no answer to InitProducerId", changed.fault()


def _opened(state: State, place: int, owner: TakeOver) -> State:
    _, source, target, _, unfenced = owner.claim
    running = Running(owner.epoch, owner.own, unfenced, source, target, stored=source)
    opened = state.having(place, running)
    if not owner.nothing_doubled and not state.expired:
        return opened._replace(broken="a promise is missing though nothing expired")
    return opened


def _elections(state: State) -> Successors:
    data = state.data
    if data.lagging and data.leader:
        caught_up = data._replace(high_watermark=len(data.log))
        yield "followers have all data", state._replace(data=caught_up).acknowledged()
    if not data.leader:
        yield "data has a leader again", state._replace(data=data._replace(leader=True))
    elif state.faults:
        yield "data has no leader", state._replace(data=data._replace(leader=False)).fault()
        if data.lagging:
            rest = data._replace(log=data.visible)
            yield "a follower that lags is elected", state._replace(data=rest).fault()


def _transactions(state: State) -> Successors:
    coordinator = state.coordinator
    for name in sorted(coordinator.pending):
        partition = state.partition(name)
        marker = Entry(coordinator.identity, -1, None)
        if not partition.leader:  # seen on 4.3.1 (KAFKA-20734)
            lost = coordinator._replace(pending=coordinator.pending - {name})
            yield f"the marker for {name} is lost", state._replace(coordinator=lost)
        elif marker not in partition.log:
            yield f"the marker reaches {name}", state.appended(name, marker).acknowledged()
    idle = not (coordinator.added or coordinator.pending)
    idle = idle and not any(isinstance(owner, TakeOver) for owner in state.owners)
    if state.faults and coordinator.known and idle:
        expired = state._replace(coordinator=coordinator._replace(known=False), expired=True)
        yield "the transactional id expires", expired.fault()


def _record(offset: int) -> Record:
    return Record(offset, None, b"%d" % offset)


def _read(offset: int, entry: Entry) -> Record | Marker:
    if not isinstance(entry.content, int):
        return Marker(offset, *entry.identity)
    copied = _record(entry.content)
    return copied._replace(offset=offset, producer_id=entry.identity.producer_id)
