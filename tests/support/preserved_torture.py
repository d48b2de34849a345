"""Faults of the drivers of a flow and of its target, under load, and what is equal after each."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import psutil
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.flows import FlowRun, spec
from support.preserved_topics import KEPT, WITHIN_S, bounds, first_unequal, visible
from support.random_log import wire_client
from support.torture_load import Load, Reports

from headrace.api import TopicPartition
from headrace.control import control
from headrace.kafka import Admin
from headrace.kafka.wire import LATEST, Transactions, list_offsets, log_ends, split_batches, start
from headrace.sandbox import Broker, Cluster

WaitUntil = Callable[..., Any]
OWNER = ("killed", "frozen", "")
BROKERS = ("leader killed", "leader moved", "follower stopped", "coordinator killed", "unclean")
EACH_ONCE = list(zip(("killed", "frozen", "killed", "", ""), BROKERS, strict=True))
"""A round for each fault of the brokers."""
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
_FROM = re.compile(r"from (?:offset )?(\d+) on")


def make_copy(cluster: Cluster, topic: str, brokers: Sequence[int], **config: str) -> None:
    """A topic of one partition on these, the first of which leads."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    made = NewTopic(topic, 1, replica_assignment=[list(brokers)], config={**KEPT, **config})
    admin.create_topics([made])[topic].result(20)


class Torture:
    """One flow of topics of one partition each, on two drivers; a target of three brokers."""

    def __init__(
        self,
        run: FlowRun,
        source: Cluster,
        target: Cluster,
        topics: Sequence[str],
        *,
        unclean: str,
        wait_until: WaitUntil,
    ) -> None:
        """``topics``: of the source, the first of which faults are aimed at; ``unclean`` is one of
        them, whose copy is on two brokers."""
        self.run, self.reports = run, Reports(run)
        self._source, self._target = source, target
        self._topics, self._unclean = topics, unclean
        self._wait_until = wait_until
        self._there, self._here = Admin(spec(target)), Admin(spec(source))
        self._admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
        self._equal_to = dict.fromkeys(topics, 0)
        self._known: set[str] = set()
        self._lost: set[str] = set()
        self._config = {one: UNCLEAN if one == unclean else {} for one in topics}
        self._ended: set[int] = set()

    def copy(self, topic: str) -> str:
        """Its name on the target."""
        return f"{self._source.name}.{topic}"

    def round(self, owner: str, broker: str, seed: str) -> str:
        """Both faults at once, under load; then all is equal, or it was reported. What was seen."""
        self._known, self._lost = set(self.reports.stops), set(self.reports.losses)
        with self.reports.followed(), Load(self._source, self._topics, seed, keys=2_000):
            self._wait(self.drivers_ready)
            {
                "leader killed": self._leader_killed,
                "leader moved": self._leader_moved,
                "follower stopped": self._follower_stopped,
                "coordinator killed": self._coordinator_killed,
                "unclean": self._elected_unclean,
            }[broker](owner)
        lost = self._losses()
        allowed = {self._unclean} if broker == "unclean" else set()
        assert {one["topic"] for one in lost} <= allowed, lost
        stopped = self._equal_again()
        seen = [f"{one['cause']} {one['firstOffset']}-{one['lastOffset']}" for one in lost]
        return "; ".join([*seen, *stopped]) or "equal"

    # The owner.

    def unit(self) -> dict[str, Any]:
        """The source task."""
        (unit,) = self.run.units() or [{}]
        return unit

    def drivers_ready(self) -> bool:
        """Both run, and the task does on one of them."""
        unit, names = self.unit(), self._names()
        return (
            len(names) == 2
            and unit.get("phase") == "Running"
            and unit["driverName"] == unit["assignedTo"]
            and unit["driverName"] in names
        )

    def _names(self) -> dict[str, psutil.Process]:
        found = {}
        for process in self.run.drivers():
            try:
                words = process.cmdline()
            except psutil.Error:
                continue
            if process.pid not in self._ended and "--name" in words:
                found[words[words.index("--name") + 1]] = process
        return found

    @contextmanager
    def _broken(self, owner: str) -> Iterator[None]:
        """Killed; or frozen until the block has ended and another owns the task: then both live."""
        driver = self._names()[self.unit()["driverName"]]
        if owner == "killed":
            driver.kill()
            self._ended.add(driver.pid)
            yield
        elif owner == "frozen":
            before = self.unit()["driverName"]
            driver.suspend()
            try:
                yield
                self._wait(lambda: self.unit().get("driverName") not in {before, "", None})
            finally:
                driver.resume()
        else:
            yield

    # The brokers.

    def _leader_killed(self, owner: str) -> None:
        self._killed(self._led(self._topics[0]), owner)

    def _coordinator_killed(self, owner: str) -> None:
        with wire_client(spec(self._target)) as client:
            data = Transactions(client, f"headrace-{self.run.name}-source-task-0-data")
            client.loop.wait(start(data.find()), WITHIN_S)
            killed = self._target.broker(data._coordinator)
        self._killed(killed, owner)

    def _killed(self, broker: Broker, owner: str) -> None:
        broker.kill()
        with self._broken(owner):
            self._grown(self._topics[0])
            broker.start()

    def _leader_moved(self, owner: str) -> None:
        """Cleanly, away from where it is and back to where it was."""
        broker = self._led(self._topics[0])
        with self._broken(owner):
            broker.stop()
            self._grown(self._topics[0])
            broker.start()
            self._wait(lambda: broker.node_id in self._partition(self._topics[0]).isrs)
            copies = [KafkaPartition(self.copy(one), 0) for one in self._topics]
            self._admin.elect_leaders(ElectionType.PREFERRED, copies).result(20)
            self._grown(self._topics[0])

    def _follower_stopped(self, owner: str) -> None:
        at = TopicPartition(self.copy(self._topics[0]), 0)
        partition = self._partition(self._topics[0])
        follower = next(one for one in partition.replicas if one != partition.leader)
        broker = self._target.broker(follower)
        with wire_client(spec(self._target)) as client:

            def above() -> int:
                listed = client.loop.wait(start(list_offsets(client, [at], LATEST)), WITHIN_S)
                ends = client.loop.wait(start(log_ends(client, [at])), WITHIN_S)
                return int(ends.all()[at].end_offset - listed.all()[at].offset)

            broker.freeze()
            try:
                self._wait(above)
                with self._broken(owner):
                    self._grown(self._topics[0])
            finally:
                broker.thaw()

    def _elected_unclean(self, owner: str) -> None:
        """One of both brokers is dead while records are acknowledged; then the other one is."""
        topic = self._unclean
        partition = self._partition(topic)
        leader = self._target.broker(partition.leader)
        other = self._target.broker(
            next(one for one in partition.replicas if one != partition.leader)
        )
        other.kill()
        kept = self._stored(other, topic)
        self._wait(lambda: self._partition(topic).isrs == [leader.node_id])
        self._grown(topic)
        self._grown(topic)  # and progress says so
        leader.kill()
        with self._broken(owner):
            held = self._stored(leader, topic)
            other.start()
            self._wait(lambda: self._partition(topic).leader == other.node_id)
            leader.start()
            self._grown(topic)
        if owner or self._stopped(topic):
            return  # what progress did not say nobody misses; and a stop says enough
        loss = self._wait(lambda: [one for one in self._losses() if one["topic"] == topic])[-1]
        assert loss["cause"] == "TargetTruncated", loss
        assert loss["firstOffset"] == kept, (loss, kept, held)
        assert kept <= loss["lastOffset"] < held, (loss, kept, held)

    def _stored(self, broker: Broker, topic: str) -> int:
        """Where the log of a broker that does not run ends."""
        folder = broker.data / f"{self.copy(topic)}-0"
        ends = [
            batch.last_offset + 1
            for file in sorted(folder.glob("*.log"))
            for batch in split_batches(memoryview(file.read_bytes())).batches
        ]
        return max(ends, default=0)

    def _partition(self, topic: str) -> Any:
        name = self.copy(topic)
        return self._admin.list_topics(name, timeout=20).topics[name].partitions[0]

    def _led(self, topic: str) -> Broker:
        return self._target.broker(self._partition(topic).leader)

    def _grown(self, topic: str) -> None:
        """Copied on, as the target says; or stopped."""
        copy = self.copy(topic)
        before = self._wait(lambda: bounds(self._there, copy))[2]
        self._wait(lambda: bounds(self._there, copy)[2] > before + 20 or self._stopped(topic))

    def _losses(self) -> list[dict[str, Any]]:
        """Those of this round."""
        return [one for key, one in self.reports.losses.items() if key not in self._lost]

    def _stopped(self, topic: str) -> list[str]:
        """What the flow said of it in this round."""
        partition = f"{self.copy(topic)}-0"
        return [one for one in self.reports.stops - self._known if partition in one]

    # What is equal.

    def _equal_again(self) -> list[str]:
        """The sentences of partitions that were stopped, all of which are true."""
        reported = []
        for topic in self._topics:
            while self._wait_equal_or_stopped(topic):
                (*_, sentence) = self._stopped(topic)
                self._check(topic, sentence)
                reported.append(sentence)
                self._make_again(topic)
            first, compacts = self._equal_to[topic], topic.startswith("compacted")
            source = visible(spec(self._source), topic, first)
            copy = self._wait(partial(visible, spec(self._target), self.copy(topic), first))
            unequal = first_unequal(source, copy, compacts=compacts)
            assert unequal is None, (topic, unequal, sorted(self.reports.stops))
            assert len(copy) >= len(source) > 0
            self._equal_to[topic] = bounds(self._here, topic)[1]
        return reported

    def _make_again(self, topic: str) -> None:
        """With the brokers and settings that it had; the flow makes it, too, and may be first."""
        name = self.copy(topic)
        replicas = self._partition(topic).replicas

        def made() -> bool:
            with suppress(KafkaException):
                self._admin.delete_topics([name])[name].result(20)
            try:
                make_copy(self._target, name, replicas, **self._config[topic])
            except KafkaException:
                return False
            return True

        self._wait(made)
        self._known |= self.reports.stops
        control.request(self.run.name, "restart", task=self.unit()["name"])
        self._equal_to[topic] = 0

    def _wait_equal_or_stopped(self, topic: str) -> bool:
        """Whether it was stopped."""

        def seen() -> Any:
            self.reports.read()
            source = bounds(self._here, topic)
            copy = bounds(self._there, self.copy(topic))
            stopped = self._stopped(topic)
            return stopped or copy[1:] == source[1:] or (topic, source, copy, self.unit())

        found = self._wait(seen, until=lambda one: not isinstance(one, tuple))
        return isinstance(found, list)

    def _check(self, topic: str, sentence: str) -> None:
        """A stop is reported: the first unequal offset is the one that it names."""
        source = visible(spec(self._source), topic)
        copy = visible(spec(self._target), self.copy(topic))
        end = bounds(self._there, self.copy(topic))[2]
        there = {offset: one for offset, one in source.items() if offset < end}
        unequal = first_unequal(there, copy, compacts=topic.startswith("compacted"))
        named = _FROM.search(sentence)
        assert named is not None, sentence
        assert unequal == int(named[1]), (sentence, unequal, end)

    def _wait(self, poll: Callable[[], Any], until: Callable[[Any], bool] = bool) -> Any:
        return self._wait_until(poll, within_s=WITHIN_S, until=until, every_s=0.2)


def rounds(count: int, seed: int) -> list[tuple[str, str]]:
    """Each fault of the brokers once, then what chance combines."""
    chance = random.Random(seed)
    more = [(chance.choice(OWNER), chance.choice(BROKERS)) for _ in range(count - len(EACH_ONCE))]
    return [*EACH_ONCE, *more][:count]
