"""An appender to a cluster in memory, and its reports."""

from collections.abc import Callable

from support.batches import record_batch
from support.patience import WITHIN_S
from support.wire_kafka import WireCluster

from headrace.api import TopicPartition
from headrace.datapath.append import Appender
from headrace.datapath.producer import Leaders
from headrace.datapath.spans import Outgoing
from headrace.errors import HeadraceError
from headrace.kafka.wire import EventLoop, ProducerIdentity, split_batches

IDENTITY = ProducerIdentity(77, 3)


class Appending:
    """An appender and its reports."""

    def __init__(
        self,
        loop: EventLoop,
        target: WireCluster,
        leaders: Leaders | None = None,
        request_admission: Callable[[TopicPartition], None] | None = None,
    ) -> None:
        """Create an appender.

        ``leaders`` are the leaders of another writer, to be shared. ``request_admission`` is passed
        to ``Appender``.
        """
        self.loop, self.target = loop, target
        target.epochs[IDENTITY.producer_id].add(IDENTITY.epoch)
        self.acknowledged: dict[int, list[tuple[int, int, int]]] = {}
        """First and next source offset, and target offset, by partition."""
        self.failed: dict[int, HeadraceError] = {}
        self.waiting: list[str] = []
        self.damaged: list[str] = []
        self.made: list[int] = []
        self.released: list[int] = []
        self.next_offsets = dict.fromkeys(target.logs, 1000)
        """Source offset of the next batch, by partition."""
        self.leaders = leaders or Leaders(target.client(loop))
        self.appender = Appender(
            loop,
            self.leaders,
            IDENTITY,
            self._acknowledge,
            self._fail,
            waiting=self.waiting.append,
            damaged=lambda at, why: self.damaged.append(f"{at}: {why}"),
            request_admission=request_admission,
        )

    def add(self, *values: bytes, partition: int = 0, content: bytearray | None = None) -> None:
        """Add a batch with these values; source offsets begin at 1000."""
        offset = self.next_offsets[partition]
        content = content or record_batch(values, base_offset=offset, producer_id=5)
        [batch] = split_batches(memoryview(content)).batches
        number = len(self.made)
        self.made.append(number)
        self.next_offsets[partition] = batch.last_offset + 1
        outgoing = Outgoing(
            batch, batch.last_offset + 1, release=lambda: self.released.append(number)
        )
        self.appender.append(TopicPartition(self.target.topic, partition), outgoing)

    def become_known(self, partition: int = 0) -> None:
        """Append a first batch. Until it is acknowledged, only one batch is in flight."""
        self.add(b"first", partition=partition)
        self.until_done()
        self.target.sent.clear()

    def until(self, condition: Callable[[], bool]) -> None:
        """Run the loop until the condition is true."""
        deadline_s = self.loop.now_s() + WITHIN_S
        self.appender.flush()
        while not condition():
            assert self.loop.now_s() < deadline_s, (
                self.acknowledged,
                self.failed,
                self.waiting,
                self.appender.pending,
            )
            self.loop.run_once(0.2)

    def until_done(self) -> None:
        """Wait until each added batch is acknowledged, or its partition failed."""
        self.until(lambda: not self.appender.pending)

    def close(self) -> None:
        """Close the appender and its connections."""
        self.appender.close()
        self.leaders.close()
        self.leaders.cluster.close()

    def _acknowledge(self, at: TopicPartition, outgoing: Outgoing, base_offset: int) -> None:
        reported = (outgoing.first_offset, outgoing.next_offset, base_offset)
        self.acknowledged.setdefault(at.partition, []).append(reported)

    def _fail(self, at: TopicPartition, error: HeadraceError) -> None:
        assert at.partition not in self.failed, "reported twice"
        self.failed[at.partition] = error
