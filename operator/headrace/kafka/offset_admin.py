"""Offsets of partitions: where their logs begin and end, and where a time is in them."""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from enum import Enum
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, IsolationLevel
from confluent_kafka.admin import OffsetSpec

from headrace.api import TopicPartition
from headrace.errors import Retriable
from headrace.kafka.cluster_admin import ClusterAdmin


class Position(Enum):
    """Named offsets of a partition. The last stable offset bounds what read_committed may see."""

    EARLIEST = "earliest"
    LATEST = "latest"
    LAST_STABLE = "last stable"


class OffsetAdmin(ClusterAdmin):
    """Blocking calls as ``ClusterAdmin``'s."""

    def offsets(
        self, partitions: Iterable[TopicPartition], position: Position
    ) -> dict[TopicPartition, int]:
        """The named offset of each partition; waits out the moment after a topic was made."""
        return _all(*self.found_offsets(partitions, position))

    def found_offsets(
        self, partitions: Iterable[TopicPartition], position: Position
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Retriable]]:
        """The same of each partition that answers in time; and why the others have none."""
        return self._list_offsets(partitions, *_question(position))

    def known_ends(
        self, partitions: Iterable[TopicPartition], position: Position = Position.LATEST
    ) -> dict[TopicPartition, int]:
        """The end of each partition that answers now, asked for once; the others are left out."""
        return self._ask_offsets(partitions, *_question(position))[0]

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """The first offset at or after a time in ms; -1 where there is no such record."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        what = f"read offsets at {timestamp_ms} ms"
        return _all(*self._list_offsets(partitions, spec, False, what))

    def _list_offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, committed: bool, what: str
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Retriable]]:
        missing = set(partitions)
        found: dict[TopicPartition, int] = {}
        deadline = time.monotonic() + self._timeout_s
        while True:
            answered, failed = self._ask_offsets(missing, spec, committed, what)
            found |= answered
            missing -= answered.keys()
            # Right after a topic was made or a leader moved, brokers disagree for a moment.
            if not missing or time.monotonic() > deadline:
                return found, failed
            time.sleep(0.1)
            # A client that saw a topic before its leaders keeps to that; asked for all topics,
            # it learns of them.
            self.topics()

    def _ask_offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, committed: bool, what: str
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, Retriable]]:
        """One request to each broker; what came, and why the others did not."""
        asked = {confluent_kafka.TopicPartition(*at): spec for at in partitions}
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        found: dict[TopicPartition, int] = {}
        failed: dict[TopicPartition, Retriable] = {}
        if asked:
            client = self._requests.client
            futures = self._requests.call(
                f"{what} on {self.name}",
                lambda: client.list_offsets(
                    asked, isolation_level=isolation, request_timeout=self._timeout_s
                ),
            )
            for at, future in futures.items():
                ours = TopicPartition(at.topic, at.partition)
                try:
                    found[ours] = self._offset(f"{what} of {ours} on {self.name}", future)
                except Retriable as error:
                    failed[ours] = error
        return found, failed

    def _offset(self, tried: str, future: "Future[Any]") -> int:
        """A broker that is frozen or killed while it is asked leaves the client's mark for "none"
        in the result, without an error. Taken for an offset it would read as a loss of all records.
        The client keeps to that leader for as long as its metadata lasts, 15 minutes, also when
        another one leads: a new client asks who leads.
        """
        offset: int = self._requests.result(tried, future).offset
        self._requests.served = True
        if offset == OFFSET_INVALID:
            self._requests.renew()
            raise Retriable(f"could not {tried}: no answer from the partition's leader")
        return offset


def _all(
    found: dict[TopicPartition, int], failed: Mapping[TopicPartition, Retriable]
) -> dict[TopicPartition, int]:
    for error in failed.values():
        raise error
    return found


def _question(position: Position) -> tuple[OffsetSpec, bool, str]:
    """What to list, whether of committed records, and what that tries."""
    earliest = position is Position.EARLIEST
    spec = OffsetSpec.earliest() if earliest else OffsetSpec.latest()  # type: ignore[no-untyped-call]
    return spec, position is Position.LAST_STABLE, f"read {position.value} offsets"
