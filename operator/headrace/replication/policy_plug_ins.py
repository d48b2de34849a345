"""Policies that somebody else wrote, and the names that are known here."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from headrace.api.model import TOPIC
from headrace.api.partitions import HEARTBEATS, is_internal
from headrace.errors import Fatal, InvalidSpec
from headrace.replication.policy import ReplicationPolicy

GROUP = "headrace.policies"
SHIPPED = ("Default", "Identity", "RenameMap")
_LONGEST = 249


def known_policies() -> Sequence[str]:
    """All names that may be chosen here."""
    return [*SHIPPED, *sorted({*entry_points(group=GROUP).names} - {*SHIPPED})]


def open_policy(name: str, source_alias: str, separator: str) -> ReplicationPolicy:
    """The plug-in of that name, made for a flow. Raises ``InvalidSpec`` when there is none, or it
    cannot be made."""
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
    except Exception as error:  # the plug-in's, whatever it is
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
    """Asks a plug-in once for each name, and believes no answer that would mix topics up.

    Its methods raise ``Fatal`` for a plug-in that raises, or names what cannot be a topic.
    """

    def __init__(self, name: str, plug_in: Any) -> None:
        self._name = name
        self._plug_in = plug_in
        # A name is asked for with each batch of records, too.
        self.target_topic: Callable[[str], str] = cache(self._target_topic)
        self.source_topic: Callable[[str], str | None] = cache(self._source_topic)

    def came_from(self, topic: str, alias: str) -> bool:
        """See ``ReplicationPolicy``."""
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
        except Exception as error:  # the plug-in's, whatever it is
            asked = f"{method}({', '.join(map(repr, arguments))})"
            raise Fatal(f"policy {self._name}: {asked} raised {error!r}") from error

    def _where(self, method: str, topic: str) -> str:
        return f"policy {self._name}: {method}({topic!r}) returned"


def _is_topic(name: str) -> bool:
    return len(name) <= _LONGEST and re.fullmatch(TOPIC, name, re.ASCII) is not None
