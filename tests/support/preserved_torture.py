"""Faults of a flow under load, and a comparison after each."""

import random
import re
from contextlib import suppress
from functools import partial
from typing import Any

from confluent_kafka import KafkaException
from support.flows import spec
from support.preserved_topics import bounds, first_unequal, visible
from support.torture_faults import BROKERS, OWNER, Faults
from support.torture_load import Load
from support.torture_scene import UNCLEAN, Scene, make_copy

from headrace.control import control

EACH_ONCE = list(zip(("killed", "frozen", "killed", "", ""), BROKERS, strict=True))
"""A round for each fault of the brokers."""
_FROM = re.compile(r"from (?:offset )?(\d+) on")


class Torture:
    """Rounds of a scene."""

    def __init__(self, scene: Scene) -> None:
        self._scene, self._faults = scene, Faults(scene)
        self._equal_to = dict.fromkeys(scene.topics, 0)

    def round(self, owner: str, broker: str, seed: str) -> str:
        """Inject both faults under load, and return a summary.

        Afterwards source and copy are equal, or each difference was reported.
        """
        scene = self._scene
        scene.begin_round()
        with scene.reports.followed(), Load(scene.source, scene.topics, seed, keys=2_000):
            self._faults.inject(owner, broker)
        lost = scene.losses()
        allowed = {scene.unclean} if broker == "unclean" else set()
        assert {one["topic"] for one in lost} <= allowed, lost
        stopped = self._equal_again()
        seen = [f"{one['cause']} {one['firstOffset']}-{one['lastOffset']}" for one in lost]
        return "; ".join([*seen, *stopped]) or "equal"

    def _equal_again(self) -> list[str]:
        """Wait until the copies are equal, and return the messages of partitions that stopped.

        Each message must be true.
        """
        reported = []
        for topic in self._scene.topics:
            while self._wait_equal_or_stopped(topic):
                (*_, sentence) = self._scene.stopped(topic)
                self._check(topic, sentence)
                reported.append(sentence)
                self._make_again(topic)
            first, compacts = self._equal_to[topic], topic.startswith("compacted")
            source = visible(spec(self._scene.source), topic, first)
            copy = self._scene.wait(
                partial(visible, spec(self._scene.target), self._scene.copy(topic), first)
            )
            unequal = first_unequal(source, copy, compacts=compacts)
            assert unequal is None, (topic, unequal, sorted(self._scene.reports.stops))
            assert len(copy) >= len(source) > 0
            self._equal_to[topic] = bounds(self._scene.here, topic)[1]
        return reported

    def _make_again(self, topic: str) -> None:
        """Create a copy again with its former brokers and settings.

        The flow also creates it, and may be first.
        """
        name = self._scene.copy(topic)
        replicas = self._scene.partition(topic).replicas
        config = UNCLEAN if topic == self._scene.unclean else {}

        def made() -> bool:
            with suppress(KafkaException):
                self._scene.admin.delete_topics([name])[name].result(60)
            try:
                make_copy(self._scene.target, name, replicas, **config)
            except KafkaException:
                return False
            return True

        self._scene.wait(made)
        self._scene.made_again()
        control.request(self._scene.run.name, "restart", task=self._scene.unit()["name"])
        self._equal_to[topic] = 0

    def _wait_equal_or_stopped(self, topic: str) -> bool:
        """Wait until the copy is equal or stopped, and return whether it was stopped."""

        def seen() -> Any:
            self._scene.reports.read()
            source = bounds(self._scene.here, topic)
            copy = bounds(self._scene.there, self._scene.copy(topic))
            stopped = self._scene.stopped(topic)
            return stopped or copy[1:] == source[1:] or (topic, source, copy, self._scene.unit())

        found: Any = (topic, None, None)
        while isinstance(found, tuple):  # it is slow; only a copy that does not grow has failed
            found = self._scene.wait(seen, until=partial(_is_new, found[2]))
        return isinstance(found, list)

    def _check(self, topic: str, sentence: str) -> None:
        """Check that the reported offset is the first unequal one."""
        source = visible(spec(self._scene.source), topic)
        copy = visible(spec(self._scene.target), self._scene.copy(topic))
        end = bounds(self._scene.there, self._scene.copy(topic))[2]
        compacts = topic.startswith("compacted")
        unequal = first_unequal(source, copy, end=end, compacts=compacts)
        named = _FROM.search(sentence)
        assert named is not None, sentence
        assert unequal == int(named[1]), (sentence, unequal, end)


def _is_new(copied: Any, found: Any) -> bool:
    return not isinstance(found, tuple) or found[2] != copied


def rounds(count: int, seed: int) -> list[tuple[str, str]]:
    """Return each fault of the brokers once, then random combinations."""
    chance = random.Random(seed)
    more = [(chance.choice(OWNER), chance.choice(BROKERS)) for _ in range(count - len(EACH_ONCE))]
    return [*EACH_ONCE, *more][:count]
