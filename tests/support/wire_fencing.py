"""Fencing on clusters in memory with the product's comparison."""

from collections.abc import Iterator, Mapping

from support.fake_kafka import MARKER
from support.producer_state import ProducerState
from support.wire_kafka import WireCluster

from headrace.api.partitions import TopicPartition
from headrace.datapath import Before, Resumed
from headrace.errors import Retriable
from headrace.replication import OwnerProducer
from headrace.replication.reconcile import Dropped, Marker, Record, StoredProgress, reconcile


class WireFencing:
    """A ``Fencing`` for all drivers of a scene."""

    impossible = ""

    def __init__(self, source: WireCluster, target: WireCluster) -> None:
        self._source, self._target = source, target
        self._ids: dict[str, OwnerProducer] = {}

    def identify(self, transactional_id: str) -> OwnerProducer:
        with self._target.lock:
            if self._target.cluster.away:
                raise Retriable("no coordinator")
            known = self._ids.get(transactional_id)
            id_ = known.producer_id if known else self._target.next_id()
            epoch = known.producer_epoch + 1 if known else 0
            made = self._ids[transactional_id] = OwnerProducer(transactional_id, id_, epoch)
            self._target.epochs[id_].add(epoch)
            return made

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        with self._target.lock:
            return {at: self._target.cluster.logs[at].end for at in epochs}

    def resume(
        self, own: OwnerProducer, partitions: Mapping[TopicPartition, Before]
    ) -> dict[TopicPartition, Resumed | Retriable]:
        with self._target.lock:
            return {at: self._resumed(own, at, before) for at, before in partitions.items()}

    def _resumed(self, own: OwnerProducer, at: TopicPartition, before: Before) -> Resumed:
        fences = {}
        for writer in before.writers:
            mine = writer.transactional_id == own.transactional_id
            new = own if mine else self.identify(writer.transactional_id)
            fences[new.producer_id] = new.producer_epoch
            self._target.producer_states[before.target, new.producer_id] = ProducerState(
                new.producer_epoch, next_sequence=0
            )
        entries: list[Record | Dropped | Marker] = list(self._tail(before))
        end = self._target.cluster.logs[before.target].end
        for offset, (id_, epoch) in enumerate(fences.items(), end):
            self._target.cluster.write(before.target, MARKER)
            entries.append(Marker(offset, id_, epoch))
        ids = frozenset(writer.producer_id for writer in before.writers)
        resume = reconcile(
            StoredProgress(before.source_offset, before.target_offset, ids | before.unfenced),
            entries,
            self._original(at, before.source_offset),
            fences,
            compare_timestamps=False,
            same_filter=before.compare,
        )
        return Resumed(resume, 0)

    def _tail(self, before: Before) -> Iterator[Record | Dropped]:
        log = self._target.cluster.logs[before.target]
        for offset in range(before.target_offset, log.end):
            if (record := log.at(offset)) is MARKER:
                yield Dropped(offset, offset)
            else:
                id_ = self._target.writers[before.target, offset]
                yield Record(offset, record.key, record.value, producer_id=id_)

    def _original(self, at: TopicPartition, first: int) -> Iterator[Record | Dropped]:
        log = self._source.cluster.logs[at]
        for offset in range(first, log.end):
            record = log.at(offset)
            if record is not MARKER:
                yield Record(offset, record.key, record.value)
