"""Replication policies, which name copies, and policies of plug-ins."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from headrace.api import HEARTBEATS, Policy
from headrace.api.model import TOPIC
from headrace.api.partitions import is_internal
from headrace.errors import Fatal, InvalidSpec


class ReplicationPolicy(Protocol):
    """Names of topics on the target."""

    def target_topic(self, topic: str) -> str:
        """Return the name on the target of a source topic."""
        ...

    def source_topic(self, topic: str) -> str | None:
        """Return the source's name of a target topic, or None if it is not from this source."""
        ...

    def came_from(self, topic: str, alias: str) -> bool:
        """Return True if a topic's name shows that it was copied from or through ``alias``."""
        ...


GROUP = "headrace.policies"
SHIPPED = ("Default", "Identity", "RenameMap")
_MAX_NAME_LENGTH = 249


def known_policies() -> Sequence[str]:
    """Return the names of all policies that can be chosen here."""
    return [*SHIPPED, *sorted({*entry_points(group=GROUP).names} - {*SHIPPED})]


def open_policy(name: str, source_alias: str, separator: str) -> ReplicationPolicy:
    """Return the plug-in of that name, created for a flow.

    Raise ``InvalidSpec`` if the plug-in does not exist or cannot be created.
    """
    for entry in entry_points(group=GROUP, name=name):
        return PlugInPolicy(name, _make(name, entry, source_alias, separator))
    raise InvalidSpec(
        f"spec.replicationPolicy.type: there is no policy {name}; known here are "
        f"{', '.join(known_policies())}. A plug-in is a Python package, installed beside headrace, "
        f"that names its policy as an entry point of {GROUP}"
    )


def _make(name: str, entry: EntryPoint, source_alias: str, separator: str) -> Any:
    try:
        made = entry.load()(source_alias, separator)
    except Exception as error:  # any error of the plug-in
        raise InvalidSpec(
            f"spec.replicationPolicy.type: policy {name} ({entry.value}) cannot be made: {error!r}"
        ) from error
    wanted = ("target_topic", "source_topic", "came_from")
    if missing := [one for one in wanted if not callable(getattr(made, one, None))]:
        raise InvalidSpec(
            f"spec.replicationPolicy.type: policy {name} ({entry.value}) has no method {missing[0]}"
        )
    return made


class PlugInPolicy:
    """Calls a plug-in once for each name, and rejects answers that would mix topics up.

    Its methods raise ``Fatal`` if the plug-in raises, or returns an invalid topic name.
    """

    def __init__(self, name: str, plug_in: Any) -> None:
        self._name = name
        self._plug_in = plug_in
        # Cached, because names are needed for each batch of records.
        self.target_topic: Callable[[str], str] = cache(self._target_topic)
        self.source_topic: Callable[[str], str | None] = cache(self._source_topic)

    def came_from(self, topic: str, alias: str) -> bool:
        return bool(self._ask("came_from", topic, alias))

    def _target_topic(self, topic: str) -> str:
        answer = self._ask("target_topic", topic)
        if not isinstance(answer, str) or not _is_topic(answer):
            raise Fatal(
                f"{self._where('target_topic', topic)} {answer!r}, which is no topic's name"
            )
        if topic != HEARTBEATS and is_internal(answer):
            raise Fatal(
                f"{self._where('target_topic', topic)} {answer}, the name of an internal topic"
            )
        if (back := self.source_topic(answer)) != topic:
            raise Fatal(
                f"{self._where('target_topic', topic)} {answer}, and takes that for the copy of "
                f"{back}: source_topic must give {topic} back"
            )
        return answer

    def _source_topic(self, topic: str) -> str | None:
        answer = self._ask("source_topic", topic)
        if answer is not None and not isinstance(answer, str):
            raise Fatal(f"{self._where('source_topic', topic)} {answer!r}, which is no text")
        return answer

    def _ask(self, method: str, *arguments: str) -> Any:
        try:
            return getattr(self._plug_in, method)(*arguments)
        except Exception as error:  # any error of the plug-in
            asked = f"{method}({', '.join(map(repr, arguments))})"
            raise Fatal(f"policy {self._name}: {asked} raised {error!r}") from error

    def _where(self, method: str, topic: str) -> str:
        return f"policy {self._name}: {method}({topic!r}) returned"


def _is_topic(name: str) -> bool:
    return len(name) <= _MAX_NAME_LENGTH and re.fullmatch(TOPIC, name, re.ASCII) is not None


@dataclass(frozen=True)
class DefaultReplicationPolicy:
    """Names copies ``<source alias><separator><topic>``, so that their origin is visible."""

    source_alias: str
    separator: str

    def target_topic(self, topic: str) -> str:
        return f"{self.source_alias}{self.separator}{topic}"

    def source_topic(self, topic: str) -> str | None:
        prefix = f"{self.source_alias}{self.separator}"
        return topic.removeprefix(prefix) if topic.startswith(prefix) else None

    def came_from(self, topic: str, alias: str) -> bool:
        """Return True if a topic's name shows that it was copied from or through ``alias``.

        Any prefix counts, as in MirrorMaker 2 (``MirrorSourceConnector.isCycle``): in a ring of
        three clusters the first cluster's topics return as ``third.second.first.topic``.
        """
        step = self.separator
        return f"{step}{alias}{step}" in f"{step}{topic}"


@dataclass(frozen=True)
class IdentityReplicationPolicy:
    """Keeps the names of topics.

    Only heartbeats get the alias, so that two sources do not share them.

    The name cannot show a cycle, so two flows in opposite directions must copy different topics.
    """

    source_alias: str
    separator: str

    def target_topic(self, topic: str) -> str:
        return f"{self.source_alias}{self.separator}{topic}" if topic == HEARTBEATS else topic

    def source_topic(self, topic: str) -> str | None:
        return HEARTBEATS if topic == self.target_topic(HEARTBEATS) else topic

    def came_from(self, topic: str, alias: str) -> bool:
        return topic == f"{alias}{self.separator}{HEARTBEATS}"


@dataclass(frozen=True)
class RenameMapPolicy:
    """Names copies by a map. Topics that are not in the map keep their names, as with Identity."""

    kept: IdentityReplicationPolicy
    renames: Mapping[str, str]

    def target_topic(self, topic: str) -> str:
        return self.renames.get(topic) or self.kept.target_topic(topic)

    def source_topic(self, topic: str) -> str | None:
        if (found := self._sources.get(topic)) is not None:
            return found
        return None if topic in self.renames else self.kept.source_topic(topic)

    def came_from(self, topic: str, alias: str) -> bool:
        return self.kept.came_from(topic, alias)

    @cached_property
    def _sources(self) -> Mapping[str, str]:
        return {renamed: topic for topic, renamed in self.renames.items()}


def policy_for(policy: Policy, source_alias: str) -> ReplicationPolicy:
    """Return the policy that a flow names. Built-in policies take precedence over plug-ins.

    Raise ``InvalidSpec`` for an unknown policy.
    """
    identity = IdentityReplicationPolicy(source_alias, policy.separator)
    match policy.type:
        case "Default":
            return DefaultReplicationPolicy(source_alias, policy.separator)
        case "Identity":
            return identity
        case "RenameMap":
            return RenameMapPolicy(identity, policy.renames or {})
    return open_policy(policy.type, source_alias, policy.separator)
