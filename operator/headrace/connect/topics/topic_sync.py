"""Settings and ACLs of copies, synchronized with their source topics."""

import re
from collections.abc import Callable, Collection, Mapping
from math import inf
from types import MappingProxyType

from headrace.api import (
    MAX_MESSAGE_LENGTH,
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    acls_topic,
    earlier_name,
)
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.internal_topics import CompactedLog, Keyed
from headrace.errors import Fatal, HeadraceError
from headrace.logs import get_logger
from headrace.replication import AS_GIVEN, TopicAcl, config_changes, wanted_acls

log = get_logger(__name__)

_RETRY_INTERVAL_S = 1.0
"""Interval in seconds while a copy is missing. A broker may not know a topic yet that another
broker has just created."""
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})

Changes = Mapping[str, Mapping[str, str | None]]
"""New values of settings, by topic. None restores the broker's default."""


def change_settings(
    change: Callable[[Changes], Mapping[str, HeadraceError]], changes: Changes
) -> dict[str, dict[str, HeadraceError]]:
    """Change settings of topics; return the error of each rejected setting, by topic.

    A broker that rejects one setting of a topic changes none of them. The settings of such a topic
    are therefore changed one by one, so that the others are synchronized.
    """
    refused: dict[str, dict[str, HeadraceError]] = {}
    for topic in sorted(change(changes)):
        refused[topic] = {
            setting: error
            for setting, value in changes[topic].items()
            if (error := change({topic: {setting: value}}).get(topic)) is not None
        }
    return refused


class TopicConfigSync:
    """Synchronization of topic settings every ``topicConfigs.intervalSeconds``. Not thread-safe.

    It raises no errors, because records are copied even without it. ``problems`` contains the
    reasons why settings differ.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._next_s = 0.0
        self._topics: frozenset[str] = frozenset()
        self._before: dict[str, Mapping[str, str]] = {}
        """Settings of each source topic at the last synchronization."""
        self.problems: Mapping[str, str] = {}
        """Messages by target topic. The key ``""`` contains a message about all topics."""
        self.conditions: tuple[Condition, ...] = ()
        """Condition ``TopicConfigsRefused`` while the target rejects settings; otherwise empty."""

    def poll(self, topics: Collection[str]) -> float:
        """Synchronize if that is due, or if ``topics`` (of the source) contains new ones.

        Return the seconds until the next synchronization is due.
        """
        wanted, now_s = self._context.spec.topic_configs, self._context.clock.monotonic()
        if not wanted.enabled:
            self._next_s, self.problems, self.conditions = 0.0, {}, ()
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
            rest_s = (
                min(wanted.interval_seconds, _RETRY_INTERVAL_S)
                if absent
                else wanted.interval_seconds
            )
            self._next_s = now_s + rest_s
        return max(0.0, self._next_s - self._context.clock.monotonic())

    def _change(self, changes: Changes) -> dict[str, str]:
        """Change settings of the target; return a message for each topic with a rejected one."""
        refused = change_settings(self._context.target.change_topic_configs, changes)
        for name, change in sorted(changes.items()):
            errors = refused.get(name, {})
            if done := {one: value for one, value in change.items() if one not in errors}:
                log.info("settings synchronized", topic=name, changed=done)
        self.conditions = _refused(refused)
        return {
            name: "; ".join(map(str, errors.values())) for name, errors in refused.items() if errors
        }

    def _synchronize(self) -> tuple[bool, dict[str, str]]:
        """Synchronize settings; return whether copies were missing, and why other copies differ."""
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
        refusals = self._change(changes)
        problems |= refusals
        self._before |= {
            topic: config.own
            for topic, config in source.items()
            if target_topic[topic] in target and target_topic[topic] not in refusals
        }
        return len(target) + len(problems.keys() - target.keys()) < len(self._topics), problems


def _refused(refused: Mapping[str, Mapping[str, HeadraceError]]) -> tuple[Condition, ...]:
    """Return a condition with each setting that stays different until a user changes something."""
    sentences = [
        str(error)
        for errors in refused.values()
        for error in errors.values()
        if isinstance(error, Fatal)
    ]
    if not sentences:
        return ()
    message = (
        f"{len(sentences)} settings of target topics do not follow their sources, because the "
        "target refuses them: let the target accept them, or list them in "
        f"spec.topicConfigs.exclude: {'; '.join(sentences)}"
    )
    return (
        Condition(
            type=ConditionType.TOPIC_CONFIGS_REFUSED,
            status=ConditionStatus.TRUE,
            reason=Reason.SETTING_REFUSED,
            message=message[:MAX_MESSAGE_LENGTH],
        ),
    )


# ACLs that headrace has added are recorded in a compacted topic on the target. They are recorded
# before they are added, and removed from the record after they are removed. If a crash leaves ACLs,
# the next connector removes them. An ACL of a user never counts as one of them.


class AddedAcls:
    """Record of the ACLs that flows of a source have added. Not thread-safe."""

    def __init__(self, context: FlowContext, topic: str) -> None:
        """Create the record in ``topic``."""
        self.topic = topic
        self._flow = context.name
        self._log = CompactedLog(self.topic, context, "ACLs", earlier=earlier_name(topic))
        self._known: set[TopicAcl] = set()

    def read(self) -> frozenset[TopicAcl]:
        """Return the ACLs that flows of this source have added.

        Create the topic if it is missing. If it was created again, record the known ACLs again.
        """
        at_start, recorded = self._log.at_start, set[TopicAcl]()
        for message in self._log.read():
            try:
                acl = TopicAcl.decode(message.key() or b"")
            except ValueError as error:
                log.warning("unreadable ACL", offset=message.offset(), why=str(error))
                continue
            if message.value() is None:
                self._known.discard(acl)
            else:
                self._known.add(acl)
                recorded.add(acl)
        if at_start:
            self.remember(self._known - recorded)
        return frozenset(self._known)

    def exists(self) -> bool:
        """Return whether the topic exists. Unlike ``read``, it creates nothing."""
        return self._log.exists()

    def remember(self, acls: Collection[TopicAcl]) -> None:
        """Record ACLs that will be added."""
        self._write(acls, self._flow.encode())

    def forget(self, acls: Collection[TopicAcl]) -> None:
        """Remove ACLs from the record after they were removed."""
        self._write(acls, None)

    def close(self) -> None:
        self._log.close()

    def _write(self, acls: Collection[TopicAcl], value: bytes | None) -> None:
        self._log.write(Keyed(acl.encode(), value) for acl in acls)


class AclSync:
    """Synchronization of ACLs every ``acls.intervalSeconds``. Not thread-safe.

    It raises no errors, because records are copied even without it. ``problem`` contains the reason
    why ACLs differ.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._added = AddedAcls(context, acls_topic(context.spec.source.alias))
        self._next_s = 0.0
        self._topics: frozenset[str] = frozenset()
        self.problem = ""

    def poll(self, topics: Collection[str]) -> float:
        """Synchronize if that is due, or if ``topics`` (of the source) contains new ones.

        Return the seconds until the next synchronization is due.
        """
        wanted, now_s = self._context.spec.acls, self._context.clock.monotonic()
        if not wanted.enabled:
            self._next_s, self.problem = 0.0, ""
            return inf
        if now_s >= self._next_s or not self._topics.issuperset(topics):
            self._topics = frozenset(topics)
            try:
                self._synchronize()
                self.problem = ""
            except HeadraceError as error:
                if self.problem != str(error):
                    log.warning("ACLs not synchronized", flow=self._context.name, why=str(error))
                self.problem = str(error)
            self._next_s = now_s + wanted.interval_seconds
        return max(0.0, self._next_s - self._context.clock.monotonic())

    def close(self) -> None:
        self._added.close()

    def _synchronize(self) -> None:
        context = self._context
        source = context.clients.acls(context.source_access)
        target = context.clients.acls(context.target_access)
        copies = {topic: context.policy.target_topic(topic) for topic in self._topics}
        wanted = wanted_acls((TopicAcl(**acl) for acl in source.topic_acls()), copies)
        there = {TopicAcl(**acl) for acl in target.topic_acls()}
        # The record also contains ACLs of other flows of the source.
        ours = {acl for acl in self._added.read() if acl.topic in copies.values()}
        new, gone = wanted - there, ours - wanted
        # Denials are added first and removed last, so that no user ever gets more permissions than
        # on the source.
        self._added.remember(new - ours)
        for permission in ("Deny", "Allow"):
            target.add_acls([one._asdict() for one in new if one.permission == permission])
        for permission in ("Allow", "Deny"):
            target.remove_acls([one._asdict() for one in gone if one.permission == permission])
        self._added.forget(gone)
        if new or gone:
            log.info("ACLs synchronized", flow=context.name, added=len(new), removed=len(gone))
