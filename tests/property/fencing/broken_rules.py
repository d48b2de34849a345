"""Models with one broken rule, which must each end in a violation. Otherwise it is not needed."""

from collections.abc import Collection
from dataclasses import dataclass

from property.fencing.brokers import DATA, Entry
from property.fencing.model import Model, Successors
from property.fencing.state import Running, State
from support.take_over_model import Claim, Identity, Stage, TakeOver

from headrace.replication.reconcile import Marker, StoredProgress


class MarkerNotReadBack(Model):
    """EndTxn's answer counts as the fence. The tail is all that the leader has replicated."""

    def readable(self, state: State, name: str, own: Identity) -> bool:
        partition = state.partition(name)
        return partition.leader and not partition.lagging

    def believed(self, owner: TakeOver) -> Collection[Marker]:
        return [Marker(0, *owner.own)]


class HighWatermarkAsEnd(Model):
    """The leader has the marker, and the tail is read to the high watermark, wherever it is."""

    def readable(self, state: State, name: str, own: Identity) -> bool:
        if name == DATA:
            return state.data.leader and Entry(own, -1, None) in state.data.log
        return super().readable(state, name, own)

    def believed(self, owner: TakeOver) -> Collection[Marker]:
        return [Marker(0, *owner.own)] if owner.stage is Stage.TAIL else ()


@dataclass(frozen=True)
class ClaimingFirst(TakeOver):
    ORDER = (
        Stage.IDENTIFY,
        Stage.PROGRESS,
        Stage.TAIL,
        Stage.CLAIM,
        Stage.ADD,
        Stage.END,
        Stage.OPEN,
    )


class ClaimBeforeFence(Model):
    """Tail and claim come first, then the fence, which is read back on both partitions."""

    def take_over(self, epoch: int) -> TakeOver:
        return ClaimingFirst(epoch)

    def believed(self, owner: TakeOver) -> Collection[Marker]:
        return [Marker(0, *owner.own)]

    def taking_over(self, state: State, place: int, owner: TakeOver) -> Successors:
        fenced = owner.stage is not Stage.OPEN or (
            state.data.marked(owner.own) and state.progress.marked(owner.own)
        )
        if fenced:
            yield from super().taking_over(state, place, owner)


class NewSequence(Model):
    """An indefinite error is answered by the same record with a new sequence."""

    def resent(self, owner: Running) -> Running:
        return owner._replace(sequence=owner.sequence + 1)


class AnyProducerId(Model):
    """The marker counts as a fence though progress names another producer id."""

    def stored(self, owner: TakeOver) -> StoredProgress:
        return owner.stored._replace(writers=frozenset({owner.own.producer_id}))


@dataclass(frozen=True)
class Forgetting(TakeOver):
    @property
    def claim(self) -> Claim:
        return super().claim._replace(unfenced=frozenset())


class UnfencedForgotten(Model):
    """A claim names its own producer id, and not those that could not be fenced.

    (The transactional id is expired from the beginning: a shorter way, of fewer states.)
    """

    def initial(self) -> State:
        state = super().initial()
        return state._replace(coordinator=state.coordinator._replace(known=False), expired=True)

    def take_over(self, epoch: int) -> TakeOver:
        return Forgetting(epoch)
