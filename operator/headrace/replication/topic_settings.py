"""Settings and ACLs that a copy takes from its source topic."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from math import inf
from typing import NamedTuple, Self

from pydantic import TypeAdapter

_UNLIMITED = str(2**63 - 1)


AS_GIVEN = {"compression.type": "producer", "message.timestamp.type": "CreateTime"}
"""Topic settings with which brokers store batches unchanged. Preserved offsets require them."""


class Unfit(NamedTuple):
    """A setting of a copy that does not fit its source."""

    setting: str
    wanted: str
    """Required value."""
    why: str
    """Reason, as the continuation of a sentence about the copies."""


def incompatible_settings(source: Mapping[str, str], copy: Mapping[str, str]) -> Iterator[Unfit]:
    """Yield the settings with which a copy rejects, loses or changes records of its source.

    Both arguments contain all settings in effect. A setting that one of them lacks is not compared.
    """
    for setting, consequence in _LIMITS.items():
        if setting in source and setting in copy:
            wanted, there = source[setting], copy[setting]
            if _number(there) < _number(wanted):
                why = f"{there} is less than the source's {wanted}: {consequence}"
                yield Unfit(setting, wanted, why)
    yield from _too_young(source, copy)
    for setting, consequence in _CHANGES.items():
        wanted, there = source.get(setting, ""), copy.get(setting, "")
        if wanted and there and there != wanted and there not in _HARMLESS:
            yield Unfit(setting, wanted, f"{there}, the source has {wanted}: {consequence}")


def settings_of_other_offsets(
    source: Mapping[str, str], copy: Mapping[str, str], *, begins_later: bool = False
) -> Iterator[Unfit]:
    """Yield the settings with which a copy cannot have its source's offsets and records.

    ``begins_later`` is True if the copy must be filled up to the first offset of its source.
    """
    for setting, wanted in AS_GIVEN.items():
        if (there := copy.get(setting, wanted)) != wanted:
            yield Unfit(setting, wanted, f"{there}, and must be {wanted}: {_CHANGES[setting]}")
    setting = "max.message.bytes"
    if setting in source and setting in copy and int(copy[setting]) < int(source[setting]):
        why = (
            f"{copy[setting]} is less than the source's {source[setting]}: what is larger can be "
            "neither copied nor left out"
        )
        yield Unfit(setting, source[setting], why)
    if begins_later and copy.get("cleanup.policy") == "compact":
        why = (
            "compact, and its source does not begin with offset 0: brokers delete the beginning "
            "only where it has delete, which may go once the copy has begun"
        )
        yield Unfit("cleanup.policy", "compact,delete", why)


def _too_young(source: Mapping[str, str], copy: Mapping[str, str]) -> Iterator[Unfit]:
    """Yield the timestamp limits of the copy that are shorter than the source's retention.

    The target refuses records that are older than its limit. A record may be as old as the source's
    retention when it is copied, even if it was new when the source accepted it.
    """
    for setting in ("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"):
        there = _number(copy.get(setting, "-1"))
        if there < _number(source.get("retention.ms", "0")) and there < int(_UNLIMITED):
            why = (
                f"{copy[setting]} is less than what the source keeps "
                f"(retention.ms={source['retention.ms']}): older records are refused"
            )
            yield Unfit(setting, _UNLIMITED, why)


def _number(value: str) -> float:
    """Return a limit as a number. The value -1 means no limit."""
    return inf if value == "-1" else int(value)


_LIMITS = {
    "max.message.bytes": "larger records are refused",
    "message.timestamp.after.max.ms": "records with later timestamps are refused",
    "retention.ms": "records are deleted sooner",
    "retention.bytes": "records are deleted sooner",
}
_CHANGES = {
    "cleanup.policy": "other records are deleted, and where it compacts, those without a key are "
    "refused",
    "compression.type": "each batch is compressed again",
    "message.timestamp.type": "records get other timestamps",
}
_HARMLESS = AS_GIVEN.values()


_NEVER = re.compile(r"(leader|follower)\.replication\.throttled\.replicas")
"""Settings that name partitions and brokers of one cluster. They are never copied."""


def config_changes(
    source: Mapping[str, str],
    target: Mapping[str, str],
    exclude: Sequence[str],
    removed: Set[tuple[str, str]] = frozenset(),
) -> dict[str, str | None]:
    """Return the settings to write to a target topic. None restores the broker's default.

    Args:
        source: Settings of the source topic itself. Broker defaults are excluded, because the
            defaults of one cluster do not apply to another.
        target: All settings in effect on the target topic. Equal values are not written, and
            neither are settings that the target's broker does not support.
        exclude: Patterns of settings that are not changed.
        removed: Names and values of settings that the source topic had before. They are reset if
            the target still has that value.
    """
    excluded = [re.compile(pattern) for pattern in exclude]

    def follows(name: str) -> bool:
        return (
            name in target
            and not _NEVER.fullmatch(name)
            and not any(pattern.fullmatch(name) for pattern in excluded)
        )

    changes: dict[str, str | None] = {
        name: value
        for name, value in sorted(source.items())
        if follows(name) and target[name] != value
    }
    for name, value in sorted(removed):
        if follows(name) and name not in source and target[name] == value:
            changes[name] = None
    return changes


# Decides which ACLs of source topics their copies get (MirrorMaker 2's ``sync.topic.acls``). A user
# who cannot read the source must not be able to read the copy. No I/O. As in MirrorMaker 2, a copy
# gets ``Read`` for ``All`` and nothing for ``Write``, and an ACL that allows is copied if it names
# its topic. Unlike in MirrorMaker 2, an ACL that denies is copied from every ACL that covers the
# topic, including prefixes and the wildcard. ACLs that permit changing or deleting a copy are never
# copied.

ALLOW, DENY = "Allow", "Deny"
LITERAL, PREFIXED = "Literal", "Prefixed"
_EVERY_TOPIC = "*"
_COPIED = ("Read", "Describe", "DescribeConfigs")


class TopicAcl(NamedTuple):
    """An ACL of topics, with the names of kafka-acls.sh."""

    topic: str
    """Name of a topic, a prefix, or ``*``."""
    pattern: str
    """``Literal`` or ``Prefixed``."""
    principal: str
    host: str
    operation: str
    permission: str
    """``Allow`` or ``Deny``."""

    def covers(self, topic: str) -> bool:
        """Return True if the ACL applies to this topic."""
        if self.pattern == PREFIXED:
            return topic.startswith(self.topic)
        return self.topic in (topic, _EVERY_TOPIC)

    def encode(self) -> bytes:
        """Encode the ACL as the key of a record."""
        return json.dumps(self._asdict(), sort_keys=True).encode()

    @classmethod
    def decode(cls, key: bytes) -> "TopicAcl":
        """Decode the key of a record. Raise ``ValueError`` if it is no ACL."""
        try:
            fields = json.loads(key)
            return cls(**{name: str(fields[name]) for name in cls._fields})
        except (KeyError, TypeError) as error:
            raise ValueError(f"no ACL: {key!r}") from error


def write_denial(topic: str) -> TopicAcl:
    """Return the ACL that lets only super users write to the topic. Deny overrides Allow."""
    return TopicAcl(topic, LITERAL, "User:*", "*", "Write", DENY)


def wanted_acls(source_acls: Iterable[TopicAcl], copies: Mapping[str, str]) -> frozenset[TopicAcl]:
    """Return the ACLs that the copies must have.

    Args:
        source_acls: All ACLs of topics of the source.
        copies: Names of the copies on the target, by source topic.
    """
    known = list(source_acls)
    return frozenset(
        wanted for topic, copy in copies.items() for wanted in _wanted(known, topic, copy)
    )


def _wanted(source_acls: list[TopicAcl], topic: str, copy: str) -> Iterator[TopicAcl]:
    allowed = [
        acl
        for acl in source_acls
        if acl.permission == ALLOW and (acl.topic, acl.pattern) == (topic, LITERAL)
    ]
    given = [one for acl in allowed for one in _read_only(acl, copy)]
    yield from given
    if given:  # if nothing is allowed, nothing has to be denied
        for acl in source_acls:
            if acl.permission == DENY and acl.covers(topic):
                yield from _read_only(acl, copy)


def _read_only(acl: TopicAcl, copy: str) -> Iterator[TopicAcl]:
    operations: tuple[str, ...] = (acl.operation,) if acl.operation in _COPIED else ()
    if acl.operation == "All":
        operations = ("Read",) if acl.permission == ALLOW else _COPIED
    for operation in operations:
        yield acl._replace(topic=copy, pattern=LITERAL, operation=operation)


@dataclass(frozen=True)
class MadeTopic:
    """A topic that headrace created. The key of its record is the topic's name."""

    topic_id: str
    """Topic id on the target. A topic that was created again under the name has another id."""
    source_cluster_id: str
    source: str
    """Source topic of the copy."""

    def encode(self) -> bytes:
        """Encode the record's value as JSON."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a record's value. Raise ``ValueError`` for any other content."""
        found: Self = TypeAdapter(cls).validate_json(data, strict=True)
        return found
