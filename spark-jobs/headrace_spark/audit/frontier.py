"""Stored frontiers of audits, in a compacted topic on the target.

There is one record for each source partition and target topic. It has the offsets at which the next
audit continues, and the sums of the ranges that earlier audits compared. The records of an audit
are written in one transaction, and only if no other audit has changed them since they were read.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from headrace.api import Model, audits_topic
from headrace.errors import GaveUp
from headrace.kafka import CompactedTopic
from headrace.mirror_test import AuditedTopic, MirrorTestRun
from headrace_spark.audit.earlier_audits import PastBlock

_VERSION = 1
SourcePartition = tuple[str, int]
"""Source topic and partition."""


class AuditedPartition(Model):
    """Range of one partition that audits have compared."""

    version: int = _VERSION
    """Version of the record.

    It rises only if earlier versions of headrace must not read the record.
    """
    run: str
    """Last run that passed."""
    judged_ms: int
    """Time of that run's verdict, in ms since 1970."""
    source_topic_id: str
    target_topic_id: str
    source_offset: int
    """First offset that was not compared."""
    target_offset: int
    is_stamped: bool
    """True if the sums contain no timestamps, because the target has ``LogAppendTime``."""
    changes: str = ""
    """Hash of the flow's changes to source records (``FlowChanges.of_records``)."""
    source_blocks: tuple[PastBlock, ...] = ()
    target_blocks: tuple[PastBlock, ...] = ()

    def is_comparable(self, *, is_stamped: bool, changes: str) -> bool:
        """Return True if the sums of an audit with these settings would be equal."""
        return (self.is_stamped, self.changes) == (is_stamped, changes)


@dataclass(frozen=True)
class Frontier:
    """Stored frontier of the partitions of one audit."""

    topic: CompactedTopic
    source_id: str
    """Id of the source cluster."""
    copies: Mapping[str, str]
    """Target topics by source topic."""
    known: Mapping[SourcePartition, AuditedPartition]

    def key(self, at: SourcePartition) -> bytes:
        """Return the key of a partition's record."""
        name, partition = at
        return _encoded(
            {
                "sourceClusterId": self.source_id,
                "topic": name,
                "partition": partition,
                "targetTopic": self.copies[name],
            }
        )

    def store(self, audited: Mapping[SourcePartition, AuditedPartition]) -> bool:
        """Replace the stored records. Return False if another audit has changed them."""
        records = {
            self.key(at): _encoded(one.model_dump(mode="json", by_alias=True))
            for at, one in audited.items()
        }
        known = {self.key(at): one.run for at, one in self.known.items()}

        def is_current(stored: Mapping[bytes, bytes]) -> bool:
            runs = {key: json.loads(stored[key])["run"] for key in records if key in stored}
            return runs == {key: run for key, run in known.items() if key in records}

        return not records or self.topic.replace(is_current, records)


def read(run: MirrorTestRun, source_id: str, topics: Iterable[AuditedTopic]) -> Frontier:
    """Return the stored frontier of the topics of an audit. Create the topic if it is missing.

    Raises:
        GaveUp: A record was written by a newer version of headrace, or cannot be read, or the user
            of the target lacks a permission.
    """
    name = audits_topic(run.source.alias)
    topic = CompactedTopic(run.target, name, f"headrace-audits-{run.source.alias}")
    topic.prepare()
    topics = tuple(topics)
    frontier = Frontier(topic, source_id, {t.source: t.target for t in topics}, {})
    stored = topic.read()
    known = {
        at: _decoded(stored[key], f"{at[0]}-{at[1]} in topic {name} of {run.target.alias}")
        for one in topics
        for at in ((one.source, partition) for partition in range(one.source_partitions))
        if (key := frontier.key(at)) in stored
    }
    return Frontier(topic, source_id, frontier.copies, known)


def _encoded(document: Mapping[str, Any]) -> bytes:
    """Return canonical JSON, so that equal keys have equal bytes, which compaction compares."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _decoded(value: bytes, what: str) -> AuditedPartition:
    try:
        document = json.loads(value)
        if document["version"] > _VERSION:
            raise GaveUp(
                f"a newer version of headrace wrote the frontier of {what} (version "
                f"{document['version']}, known is {_VERSION}): audit with that version, or with "
                "startFrom.mode: Earliest"
            )
        return AuditedPartition.model_validate(document)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise GaveUp(
            f"the frontier of {what} cannot be read: delete the topic, so that the next audit "
            "begins with the first record"
        ) from error
