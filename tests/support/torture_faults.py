"""Faults of the drivers of a flow and of the brokers of its target, both at once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as KafkaPartition
from support.flows import spec, words_of
from support.patience import WITHIN_S
from support.random_log import wire_client
from support.torture_scene import Scene

from headrace.api import TopicPartition
from headrace.kafka.wire import LATEST, Transactions, list_offsets, log_ends, split_batches, start
from headrace.sandbox import BrokerProcess

OWNER = ("killed", "frozen", "")
BROKERS = ("leader killed", "leader moved", "follower stopped", "coordinator killed", "unclean")


class Faults:
    """Faults. Each method returns when the flow copies again, or has reported why it does not."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._ended: set[int] = set()

    def inject(self, owner: str, broker: str) -> None:
        """Inject one of ``OWNER`` and one of ``BROKERS``."""
        self._scene.wait(self._drivers_ready)
        faults: dict[str, Callable[[str], None]] = {
            "leader killed": self._leader_killed,
            "leader moved": self._leader_moved,
            "follower stopped": self._follower_stopped,
            "coordinator killed": self._coordinator_killed,
            "unclean": self._elected_unclean,
        }
        faults[broker](owner)

    def _drivers_ready(self) -> bool:
        """Return whether both drivers run, and the task runs on one of them."""
        unit, names = self._scene.unit(), self._names()
        return (
            len(names) == 2
            and unit.get("phase") == "Running"
            and unit["driverName"] == unit["assignedTo"]
            and unit["driverName"] in names
        )

    def _names(self) -> dict[str, psutil.Process]:
        found = {}
        for process in self._scene.run.drivers():
            try:
                words = words_of(process)
            except psutil.Error:
                continue
            if process.pid not in self._ended and "--name" in words:
                found[words[words.index("--name") + 1]] = process
        return found

    @contextmanager
    def _broken(self, owner: str) -> Iterator[None]:
        """Kill the owner, or freeze it until the block has ended and another owns the task.

        After a freeze, both are alive.
        """
        driver = self._names()[self._scene.unit()["driverName"]]
        if owner == "killed":
            driver.kill()
            self._ended.add(driver.pid)
            yield
        elif owner == "frozen":
            before = self._scene.unit()["driverName"]
            driver.suspend()
            try:
                yield
                self._scene.wait(
                    lambda: self._scene.unit().get("driverName") not in {before, "", None}
                )
            finally:
                driver.resume()
        else:
            yield

    def _leader_killed(self, owner: str) -> None:
        self._killed(self._led(self._scene.topics[0]), owner)

    def _coordinator_killed(self, owner: str) -> None:
        with wire_client(spec(self._scene.target)) as client:
            data = Transactions(client, f"headrace-{self._scene.run.name}-source-task-0-data")
            coordinator = client.loop.wait(start(data.find()), WITHIN_S)
        killed = self._scene.target.broker(coordinator)
        self._killed(killed, owner)

    def _killed(self, broker: BrokerProcess, owner: str) -> None:
        broker.kill()
        with self._broken(owner):
            self._scene.grow(self._scene.topics[0])
            broker.start()

    def _leader_moved(self, owner: str) -> None:
        """Move the leader cleanly to another broker and back."""
        broker = self._led(self._scene.topics[0])
        with self._broken(owner):
            broker.stop()
            self._scene.grow(self._scene.topics[0])
            broker.start()
            self._scene.wait(
                lambda: broker.node_id in self._scene.partition(self._scene.topics[0]).isrs
            )
            copies = [KafkaPartition(self._scene.copy(one), 0) for one in self._scene.topics]
            self._scene.admin.elect_leaders(ElectionType.PREFERRED, copies).result(60)
            self._scene.grow(self._scene.topics[0])

    def _follower_stopped(self, owner: str) -> None:
        at = TopicPartition(self._scene.copy(self._scene.topics[0]), 0)
        partition = self._scene.partition(self._scene.topics[0])
        follower = next(one for one in partition.replicas if one != partition.leader)
        broker = self._scene.target.broker(follower)
        with wire_client(spec(self._scene.target)) as client:

            def above() -> int:
                listed = client.loop.wait(start(list_offsets(client, [at], LATEST)), WITHIN_S)
                ends = client.loop.wait(start(log_ends(client, [at])), WITHIN_S)
                return int(ends.all()[at].end_offset - listed.all()[at].offset)

            broker.freeze()
            try:
                self._scene.wait(above)
                with self._broken(owner):
                    self._scene.grow(self._scene.topics[0])
            finally:
                broker.thaw()

    def _elected_unclean(self, owner: str) -> None:
        """Keep one of two brokers dead while records are acknowledged, then the other one."""
        topic = self._scene.unclean
        partition = self._scene.partition(topic)
        leader = self._scene.target.broker(partition.leader)
        other = self._scene.target.broker(
            next(one for one in partition.replicas if one != partition.leader)
        )
        other.kill()
        kept = self._stored(other, topic)
        self._scene.wait(lambda: self._scene.partition(topic).isrs == [leader.node_id])
        self._scene.grow(topic)
        self._scene.grow(topic)  # and progress says so
        leader.kill()
        with self._broken(owner):
            held = self._stored(leader, topic)
            other.start()
            self._scene.wait(lambda: self._scene.partition(topic).leader == other.node_id)
            leader.start()
            self._scene.grow(topic)
        if owner or self._scene.stopped(topic):
            return  # no loss of unstored records is reported; a stop is a report
        loss = self._scene.wait(
            lambda: [one for one in self._scene.losses() if one["topic"] == topic]
        )[-1]
        assert loss["cause"] == "TargetTruncated", loss
        assert loss["firstOffset"] == kept, (loss, kept, held)
        assert kept <= loss["lastOffset"] < held, (loss, kept, held)

    def _stored(self, broker: BrokerProcess, topic: str) -> int:
        """Return the end of a log on a broker that does not run."""
        folder = broker.data / f"{self._scene.copy(topic)}-0"
        ends = [
            batch.last_offset + 1
            for file in sorted(folder.glob("*.log"))
            for batch in split_batches(memoryview(file.read_bytes())).batches
        ]
        return max(ends, default=0)

    def _led(self, topic: str) -> BrokerProcess:
        return self._scene.target.broker(self._scene.partition(topic).leader)
