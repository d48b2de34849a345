"""Keeps the settings of target topics like those of their sources (``spec.topicConfigs``)."""

import re
from collections.abc import Collection, Mapping
from math import inf
from types import MappingProxyType

from headrace.connect.runtime.context import FlowContext
from headrace.errors import HeadraceError
from headrace.logs import get_logger
from headrace.replication import AS_GIVEN, config_changes

log = get_logger(__name__)

_AGAIN_S = 1.0
"""A broker may not know a topic yet that another one has just created."""
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class TopicConfigSync:
    """Polls both clusters every ``topicConfigs.intervalSeconds``. One thread calls it.

    It raises nothing: data is copied without settings, too, and ``problems`` says why they differ.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._next_s = 0.0
        self._topics: frozenset[str] = frozenset()
        self._before: dict[str, Mapping[str, str]] = {}
        """By source topic: what was set there when the target's last followed it."""
        self.problems: Mapping[str, str] = {}
        """Sentences, by topic of the target; or one that holds for all, by ``""``."""

    def poll(self, topics: Collection[str]) -> float:
        """Synchronize if that is due, or if ``topics`` (of the source) has new ones.

        Returns the seconds until it is due again.
        """
        wanted, now_s = self._context.spec.topic_configs, self._context.clock.monotonic()
        if not wanted.enabled:
            self._next_s, self.problems = 0.0, {}
            return inf
        if now_s >= self._next_s or not self._topics.issuperset(topics):
            self._topics = frozenset(topics)
            try:
                absent, problems = self._synchronize()
            except HeadraceError as error:
                absent, problems = False, {"": str(error)}
            if problems and problems != self.problems:
                first, why = next(iter(problems.items()))
                log.warning("settings not synchronized", topics=len(problems), first=first, why=why)
            self.problems = problems
            rest_s = min(wanted.interval_seconds, _AGAIN_S) if absent else wanted.interval_seconds
            self._next_s = now_s + rest_s
        return max(0.0, self._next_s - self._context.clock.monotonic())

    def _change(self, changes: Mapping[str, Mapping[str, str | None]]) -> dict[str, HeadraceError]:
        """Change settings of the target; return the first refusal of each topic.

        A broker that refuses one setting of a topic changes none of them. The settings of such a
        topic are therefore changed one by one, so that the others follow.
        """
        target, found = self._context.target, {}
        together = target.change_topic_configs(changes)
        for name, change in sorted(changes.items()):
            done = dict(change)
            if name in together:
                alone = {
                    setting: target.change_topic_configs({name: {setting: value}}).get(name)
                    for setting, value in change.items()
                }
                if errors := [error for error in alone.values() if error is not None]:
                    found[name] = errors[0]
                done = {one: value for one, value in change.items() if alone[one] is None}
            if done:
                log.info("settings synchronized", topic=name, changed=done)
        return found

    def _synchronize(self) -> tuple[bool, dict[str, str]]:
        """Whether topics were absent, and why others could not be made equal."""
        target_topic = {topic: self._context.policy.target_topic(topic) for topic in self._topics}
        source, refused = self._context.source.topic_configs(self._topics)
        problems = {target_topic[topic]: str(error) for topic, error in refused.items()}
        target, refused = self._context.target.topic_configs(target_topic[one] for one in source)
        problems |= {name: str(error) for name, error in refused.items()}
        changes = {}
        exclude = list(self._context.spec.topic_configs.exclude)
        if self._context.preserved:
            exclude += map(re.escape, AS_GIVEN)
        for topic, config in source.items():
            if (there := target.get(target_topic[topic])) is not None:
                change = config_changes(
                    config.own,
                    there.in_effect,
                    exclude,
                    self._before.get(topic, _NO_SETTINGS).items() - config.own.items(),
                )
                if change:
                    changes[target_topic[topic]] = change
        refused = self._change(changes)
        problems |= {name: str(error) for name, error in refused.items()}
        self._before |= {
            topic: config.own
            for topic, config in source.items()
            if target_topic[topic] in target and target_topic[topic] not in refused
        }
        return len(target) + len(problems.keys() - target.keys()) < len(self._topics), problems
