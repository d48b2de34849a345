"""Rings of flows: topics that a flow refuses because their records would be copied endlessly.

``replication.ancestry`` defines the rule, and the terms ancestry, hop and line.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from math import inf

from headrace.api import is_progress_topic
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.internal_topics import TopicTail
from headrace.datapath import ANCESTRY_PARTITION, Storing
from headrace.errors import Fatal, HeadraceError
from headrace.logs import get_logger
from headrace.replication.ancestry import (
    AncestryKey,
    AncestryTable,
    ClusterTopic,
    Descent,
    FlowRenewal,
    Hop,
    JudgedHop,
    encode,
    is_ancestry,
    judge_hop,
)

log = get_logger(__name__)

_READ_S = 2.0
"""Interval in seconds at which the source's ancestry is read, if it has any progress topic. It is
one request for each topic."""
_RENEW_S = 20.0
"""Interval in seconds at which a flow stores that it runs. It is shorter than ``GRACE_S``."""
_HOLD_S = 10.0
"""Time in seconds for which a new topic is held back if its source is a copy. Flows of a ring that
start at the same time learn of each other in this time: each flow needs ``_READ_S``."""


class SourceAncestry:
    """Ancestry that other flows, which write to the source, have stored on the source.

    Not thread-safe.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._tables: dict[str, AncestryTable] = {}
        self._tails: dict[str, TopicTail] = {}
        self.unread: dict[str, str] = {}
        """Reasons why progress topics cannot be read, by topic."""

    def read(self, topics: Iterable[str]) -> None:
        """Read what was stored since the last call. ``topics`` are all topics of the source.

        A topic that the flow may not read is left out, and is added to ``unread``. A topic
        that was read before and cannot be read now is also added, and its earlier records count.

        Raises:
            Retriable: A topic that was not read before cannot be read now.
        """
        there = set(filter(is_progress_topic, topics))
        for gone in self._tables.keys() - there:
            self._forget(gone)
        self.unread = {}
        for topic in sorted(there):
            try:
                self._read(topic)
            except Fatal as error:
                self._forget(topic)
                self.unread[topic] = str(error)
            except HeadraceError as error:
                self._close(topic)  # it may have been created again
                if topic not in self._tables:
                    raise
                self.unread[topic] = str(error)

    def _read(self, topic: str) -> None:
        # A reader that begins at the start of the topic cannot know which records are new.
        now_s = self._context.clock.monotonic() if topic in self._tails else -inf
        table = self._tables.get(topic) or AncestryTable()
        for message in self._tail(topic).read():
            key = message.key() or b""
            if is_ancestry(key):
                try:
                    table.read(key, message.value(), message.timestamp()[1], now_s)
                except ValueError as error:
                    log.warning("unreadable ancestry", topic=topic, why=str(error))
        self._tables[topic] = table

    def _tail(self, topic: str) -> TopicTail:
        if topic not in self._tails:
            context = self._context
            self._tails[topic] = TopicTail(
                topic,
                context.source_access,
                context.source,
                context.clients,
                context.clock,
                partition=ANCESTRY_PARTITION,
                # Progress of an open transaction must not delay the records behind it.
                settings={"isolation.level": "read_uncommitted"},
            )
        return self._tails[topic]

    @property
    def is_empty(self) -> bool:
        """Whether the source has no progress topic that can be read."""
        return not self._tables

    def active(self) -> list[Descent]:
        """Return the hops of flows that run and write the source."""
        now_ms, now_s = self._context.now_ms, self._context.clock.monotonic()
        return [one for table in self._tables.values() for one in table.active(now_ms, now_s)]

    def _forget(self, topic: str) -> None:
        self._tables.pop(topic, None)
        self._close(topic)

    def _close(self, topic: str) -> None:
        if (tail := self._tails.pop(topic, None)) is not None:
            tail.close()

    def close(self) -> None:
        """Close the clients."""
        for topic in list(self._tails):
            self._close(topic)


def flow_key(context: FlowContext) -> AncestryKey:
    """Return the key of the flow. Its namespace is a part of the name."""
    metadata = context.flow.metadata
    name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    return AncestryKey(name, context.source_cluster_id)


def judged(
    context: FlowContext,
    topics: Iterable[str],
    upstream: Iterable[Descent],
    stored: Mapping[str, Descent],
) -> dict[str, JudgedHop]:
    """Apply the rule of ``replication.ancestry`` to these source topics.

    Topics that are failed over are left out, because they are not copied. The result is empty for a
    flow with a record filter, which may end a ring. ``stored`` are the flow's hops so far. The hop
    of a topic that is not in ``stored`` counts as the youngest.
    """
    spec = context.spec
    if spec.record_filter is not None:
        return {}
    topics = sorted(set(topics) - _failed_over(context))
    flow, now_ms = flow_key(context).ancestry_of_flow, context.now_ms
    writers: dict[ClusterTopic, list[Descent]] = {}
    for one in upstream:
        writers.setdefault(one.hop.target, []).append(one)
    found = {}
    for topic in topics:
        source = ClusterTopic(context.source_cluster_id, topic)
        target = ClusterTopic(context.target_cluster_id, context.policy.target_topic(topic))
        known = stored.get(topic)
        since_ms = known.hop.since_ms if known and known.hop.target == target else now_ms
        hop = Hop(flow, source, target, spec.source.alias, spec.target.alias, since_ms)
        found[topic] = judge_hop(hop, writers.get(source, ()), context.topics.matches)
    return found


def _failed_over(context: FlowContext) -> set[str]:
    """Return the topics of which all partitions with progress are failed over."""
    switched, copied = set[str](), set[str]()
    for key, one in context.progress.stored(context.source_cluster_id).items():
        if key.target_topic == context.policy.target_topic(key.topic):
            (copied if one.switch is None else switched).add(key.topic)
    return switched - copied


class RingGuard:
    """Stores the ancestry of a flow's copies, and refuses topics. Not thread-safe."""

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._upstream = SourceAncestry(context)
        self._stored: dict[str, Descent] | None = None
        self._stored_s: dict[str, float] = {}
        """Monotonic time in seconds at which this instance first stored each hop."""
        self._renew_s = self._read_s = -inf
        self._judged_by: list[Descent] = []
        """Hops of the source with which the topics were judged last."""
        self._source_topics: Collection[str] = ()
        self._topics: Collection[str] = ()
        self._stopping: Storing | None = None
        self.refused: dict[str, str] = {}
        """Sentences about refused topics, by source topic."""
        self.held: Set[str] = frozenset()
        """Topics that are not copied yet. See ``_HOLD_S``."""

    @property
    def problem(self) -> str:
        """Reason why rings may be missed; empty if there is none."""
        unread = self._upstream.unread
        return f"rings of flows may be missed: {next(iter(unread.values()))}" if unread else ""

    @property
    def next_s(self) -> float:
        """Monotonic time in seconds at which ``poll`` is due."""
        return self._renew_s if self._upstream.is_empty else min(self._renew_s, self._read_s)

    def read(self, source_topics: Collection[str]) -> None:
        """Read the ancestry of the source. ``source_topics`` are all of its topics.

        Raises:
            Retriable: The source does not respond.
        """
        self._source_topics = source_topics
        self._upstream.read(source_topics)
        self._read_s = self._context.clock.monotonic() + _READ_S

    def store(self, topics: Collection[str]) -> bool:
        """Store the ancestry of these topics, and update ``refused`` and ``held``.

        Return True if a topic is new. In this case the caller must read the source's ancestry and
        store again. Because each flow of a ring writes before it reads, at least one of two flows
        finds the other's record.

        Raises:
            HeadraceError: The ancestry could not be stored.
        """
        context, key = self._context, flow_key(self._context)
        now_s = context.clock.monotonic()
        self._topics = topics
        if self._stored is None:
            self._stored = context.progress.hops(key, context.now_ms)
        self._judged_by = self._upstream.active()
        found = judged(context, topics, self._judged_by, self._stored)
        wanted = {topic: one.descent for topic, one in found.items()}
        changed = {topic: one for topic, one in wanted.items() if self._stored.get(topic) != one}
        records: dict[bytes, bytes | None] = {
            replace(key, topic=topic).encode(): encode(one) for topic, one in changed.items()
        }
        matches = context.topics.matches
        left = {
            one
            for one in self._stored.keys() - wanted.keys()
            # A topic that the source does not list now may only be invisible.
            if one in topics or not matches(one)
        }
        records |= {replace(key, topic=topic).encode(): None for topic in left}
        if now_s >= self._renew_s:
            records[key.encode()] = encode(FlowRenewal(stopped=False))
        if records:
            context.progress.send_ancestry(records).wait()
        if key.encode() in records:
            self._renew_s = now_s + _RENEW_S
        new = changed.keys() - self._stored.keys()
        self._stored_s |= dict.fromkeys(new, now_s)
        self._stored = {one: at for one, at in self._stored.items() if one not in left} | changed
        self.refused = {topic: one.ring.sentence for topic, one in found.items() if one.ring}
        self.held = {
            topic
            for topic, one in wanted.items()
            if one.lines and now_s - self._stored_s.get(topic, -inf) < _HOLD_S
        }
        return bool(new)

    def poll(self) -> bool:
        """Read and store if that is due. Return True if ``refused`` or ``held`` has changed.

        Raises:
            HeadraceError: A cluster does not respond.
        """
        if self._context.clock.monotonic() < self.next_s:
            return False
        before = self.refused.keys(), self.held
        self.read(self._source_topics)
        renews = self._context.clock.monotonic() >= self._renew_s
        if renews or self.held or self._upstream.active() != self._judged_by:
            self.store(self._topics)
        return before != (self.refused.keys(), self.held)

    def stop(self) -> None:
        """Store that the flow has stopped, without waiting. Its hops no longer count.

        Call it before the release of the unit, so that the next owner's record is later.
        """
        record = {flow_key(self._context).encode(): encode(FlowRenewal(stopped=True))}
        with suppress(HeadraceError):
            self._stopping = self._context.progress.send_ancestry(record)

    def close(self) -> None:
        """Wait for the record of ``stop``, and close the clients."""
        try:
            if self._stopping is not None:
                self._stopping.wait()
        except HeadraceError as error:
            log.info("the end of the flow is not stored", flow=self._context.name, why=str(error))
        self._upstream.close()
