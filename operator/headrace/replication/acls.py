"""Which ACLs of source topics their copies get (MirrorMaker 2's ``sync.topic.acls``), so that
nobody may read of a copy what they may not read of its source. Pure.

As in MirrorMaker 2: of ``All`` a copy gets ``Read``, of ``Write`` nothing, and an ACL that allows
is copied when it names its topic. Unlike it: what is denied is copied from every ACL that covers
the topic, by a prefix or for all topics, too; and nothing that would let somebody change or delete
a copy is.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

ALLOW, DENY = "Allow", "Deny"
LITERAL, PREFIXED = "Literal", "Prefixed"
_EVERY_TOPIC = "*"
_COPIED = ("Read", "Describe", "DescribeConfigs")


class TopicAcl(NamedTuple):
    """An ACL of topics, in the names of kafka-acls.sh."""

    topic: str
    """A name, the beginning of one, or ``*``."""
    pattern: str
    """``Literal`` or ``Prefixed``."""
    principal: str
    host: str
    operation: str
    permission: str
    """``Allow`` or ``Deny``."""

    def covers(self, topic: str) -> bool:
        """Whether it is about this topic."""
        if self.pattern == PREFIXED:
            return topic.startswith(self.topic)
        return self.topic in (topic, _EVERY_TOPIC)

    def encode(self) -> bytes:
        """As the key of a record."""
        return json.dumps(self._asdict(), sort_keys=True).encode()

    @classmethod
    def decode(cls, key: bytes) -> "TopicAcl":
        """Raises ``ValueError`` for anything else."""
        try:
            fields = json.loads(key)
            return cls(**{name: str(fields[name]) for name in cls._fields})
        except (KeyError, TypeError) as error:
            raise ValueError(f"no ACL: {key!r}") from error


def write_denial(topic: str) -> TopicAcl:
    """Nobody but super users may write to the topic: what denies goes before what allows."""
    return TopicAcl(topic, LITERAL, "User:*", "*", "Write", DENY)


def wanted_acls(there: Iterable[TopicAcl], copies: Mapping[str, str]) -> frozenset[TopicAcl]:
    """``there``: all ACLs of topics of the source; ``copies``: names on the target, by topic."""
    known = list(there)
    return frozenset(
        wanted for topic, copy in copies.items() for wanted in _wanted(known, topic, copy)
    )


def _wanted(there: list[TopicAcl], topic: str, copy: str) -> Iterator[TopicAcl]:
    allowed = [
        acl
        for acl in there
        if acl.permission == ALLOW and (acl.topic, acl.pattern) == (topic, LITERAL)
    ]
    given = [one for acl in allowed for one in _read_only(acl, copy)]
    yield from given
    if given:  # where nothing is allowed, there is nothing to deny
        for acl in there:
            if acl.permission == DENY and acl.covers(topic):
                yield from _read_only(acl, copy)


def _read_only(acl: TopicAcl, copy: str) -> Iterator[TopicAcl]:
    operations: tuple[str, ...] = (acl.operation,) if acl.operation in _COPIED else ()
    if acl.operation == "All":
        operations = ("Read",) if acl.permission == ALLOW else _COPIED
    for operation in operations:
        yield acl._replace(topic=copy, pattern=LITERAL, operation=operation)
