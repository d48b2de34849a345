"""State of the model, and the small changes of its transitions."""

from typing import NamedTuple

from property.fencing.brokers import DATA, PROGRESS, Coordinator, Entry, Partition, Request
from support.take_over_model import Claim, Identity, Stage, TakeOver


class Running(NamedTuple):
    """Owner that has opened its partition."""

    epoch: int
    identity: Identity
    unfenced: frozenset[int]
    source_offset: int
    """Offset below which all is acknowledged. The record at it is in flight if ``sent``."""
    target_offset: int
    stored: int
    sequence: int = 0
    progress_sequence: int = 1
    sent: bool = False


Owner = Running | TakeOver | None
"""An owner, or None if it has not started, has stopped or has crashed."""


class State(NamedTuple):
    owners: tuple[Owner, ...]
    data: Partition
    progress: Partition
    coordinator: Coordinator
    requests: tuple[Request, ...]
    """Requests in flight, sorted. The same one may be there twice."""
    starts: int
    faults: int
    epoch: int = 1
    """Epoch of the task, which rises with each start."""
    promise: bool = True
    """Whether the claim of the highest epoch promises that no record is duplicated from now on."""
    expired: bool = False
    broken: str = ""
    """Forbidden effect of the last transition."""

    def __str__(self) -> str:
        logs = {DATA: self.data, PROGRESS: self.progress}
        return "\n".join(
            f"{name}: {', '.join(map(str, log.log))}; high watermark {log.high_watermark}"
            for name, log in logs.items()
        )

    def partition(self, name: str) -> Partition:
        return self.data if name == DATA else self.progress

    def fault(self) -> "State":
        return self._replace(faults=self.faults - 1)

    def having(self, place: int, owner: Owner) -> "State":
        return self._replace(owners=(*self.owners[:place], owner, *self.owners[place + 1 :]))

    def send(self, to: str, entry: Entry) -> "State":
        return self._replace(requests=tuple(sorted((*self.requests, Request(to, entry)))))

    def appended(self, to: str, entry: Entry) -> "State":
        if to == PROGRESS:
            return self._claimed(entry)._replace(
                progress=self.progress.append(entry, replicated=True)
            )
        held = {one.content for one in self.data.log} if entry.content is not None else set()
        doubled = self.promise and entry.content in held
        broken = f"record {entry.content} is doubled" if doubled else self.broken
        return self._replace(data=self.data.append(entry, replicated=False), broken=broken)

    def _claimed(self, entry: Entry) -> "State":
        highest = max(claim.epoch for claim in self.progress.claims)
        for owner in self.owners:
            if (
                isinstance(owner, TakeOver)
                and owner.stage is Stage.CLAIM
                and owner.own == entry.identity
                and owner.epoch >= highest
            ):
                return self._replace(promise=owner.nothing_doubled)
        return self

    def acknowledged(self) -> "State":
        """Return the state with all markers acknowledged that the followers have."""
        identity, pending = self.coordinator.identity, self.coordinator.pending
        left = frozenset(name for name in pending if not self.partition(name).marked(identity))
        return self._replace(coordinator=self.coordinator._replace(pending=left))


def initial(starts: int, faults: int) -> State:
    """Return the state in which one owner runs and has copied nothing."""
    first = Identity(1, 0)
    marker = Entry(first, -1, None)
    claim = Entry(first, 0, Claim(1, 0, 1, first.producer_id))
    return State(
        owners=(Running(1, first, frozenset(), 0, 1, 0), None),
        data=Partition((marker,), 1),
        progress=Partition((marker, claim), 2),
        coordinator=Coordinator(first),
        requests=(),
        starts=starts,
        faults=faults,
    )


def violation(state: State) -> str:
    """Return a violation: a gap, a duplicate against a promise, or progress ahead of the target."""
    if state.broken:
        return state.broken
    copied = 0
    for entry in state.data.log:
        if isinstance(entry.content, int):
            if entry.content > copied:
                return f"record {copied} is missing in front of {entry.content}"
            copied = max(copied, entry.content + 1)
    for claim in state.progress.claims:
        held = {copy.content for copy in state.data.visible[: claim.target_offset]}
        if not held.issuperset(range(claim.source_offset)):
            return f"progress {claim.source_offset} is ahead of the target"
    return ""
