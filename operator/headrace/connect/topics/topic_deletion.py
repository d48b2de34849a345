"""Deletion of copies whose source topics were deleted.

A copy is deleted only if all conditions are true. Each condition is checked again immediately
before the deletion:

- The flow created the copy while ``mode`` was not Disabled, and it is still the same topic.

- The source is the same cluster, responds, and reports by name that the topic does not exist. A
topic that the flow may not describe does not count as deleted.

- That was true for ``delaySeconds`` without interruption in this connector.

- No task has a partition of the topic, the copy is not failed over, and it has no unresolved loss.

- No group with members reads the copy on the target.

- At most ``maxTopics`` copies are due at once. If more are due, none is deleted.
"""

from collections.abc import Collection, Mapping, Set
from dataclasses import replace

from headrace.api import (
    HEARTBEATS,
    MAX_MESSAGE_LENGTH,
    Condition,
    ConditionStatus,
    ConditionType,
    LossAction,
    LossCause,
    OnDataLoss,
    Reason,
    TopicPartition,
    earlier_name,
    made_topics_topic,
)
from headrace.api.flow import TopicDeletionMode
from headrace.connect.runtime.both_clusters import groups_in_use
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.internal_topics import CompactedLog, Keyed
from headrace.connect.topics.losses import deleted_on_source, is_shown, sentence
from headrace.errors import Fatal, HeadraceError
from headrace.kafka import NO_TOPIC_ID, Admin, Topic
from headrace.logs import get_logger
from headrace.replication import Loss, MadeTopic, Progress
from headrace.sentences import first_few

log = get_logger(__name__)

_ACTIONS = {
    OnDataLoss.FAIL: LossAction.STOPPED,
    OnDataLoss.RESTART: LossAction.RESTARTED,
    OnDataLoss.CONTINUE: LossAction.CONTINUED,
}


class DeletedTopics:
    """Partitions that have progress and no longer exist on the source. Not thread-safe.

    A partition counts as deleted if the source did not have it in two successive discoveries,
    because a list may omit topics temporarily, or for lack of permissions. If a topic is created
    again with fewer partitions, the missing ones count as deleted. The loss of partitions that
    exist again is found by the task that copies them.

    Progress without a loss is purged. Progress with a loss is kept until a reset, because a
    fail-over lists the loss. Progress with a fail-over is kept, because the copy is then the
    original: it must not be deleted, and no topic may be copied into it.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._ends: dict[TopicPartition, int] = {}
        self._absent: Set[TopicPartition] = frozenset()
        self.losses: Mapping[TopicPartition, Loss] = {}

    def saw(self, ends: Mapping[TopicPartition, int]) -> None:
        """Record the current ends of the source's logs."""
        self._ends |= ends

    def find(self, partition_counts: Mapping[str, int], in_use: Set[TopicPartition]) -> None:
        """Find partitions that were deleted, and store their losses.

        Args:
            partition_counts: Number of partitions of each topic of the source.
            in_use: Partitions whose progress a task may still store.

        Raises:
            Retriable: Brokers do not respond.
        """
        stored = self._stored()
        absent: Set[TopicPartition] = {
            at for at in stored if at.partition >= partition_counts.get(at.topic, 0)
        }
        if absent:
            absent = self._confirmed(absent, stored)
            self._context.progress.read_to_end()
            stored = self._stored()
        known = {at for at, one in stored.items() if one.loss and _is_deletion(one.loss)}
        busy = in_use | {
            at
            for at in absent
            if at.topic in {one.topic for one in in_use} - partition_counts.keys()
        }
        gone = stored.keys() & absent & (self._absent | known) - busy
        self._absent = absent
        losses: dict[TopicPartition, Loss] = {}
        for topic in sorted({at.topic for at in gone}):
            of_topic = {at: stored[at] for at in sorted(gone) if at.topic == topic}
            losses |= self._settle(topic, of_topic, exists=topic in partition_counts)
        self.losses = losses

    def _confirmed(
        self, absent: Set[TopicPartition], stored: Mapping[TopicPartition, Progress]
    ) -> Set[TopicPartition]:
        """Return the partitions that the source also lacks when it describes their topics.

        A topic has fewer partitions than before only if it was created again with another id.
        """
        context = self._context

        def lacking() -> set[TopicPartition]:
            topics = existing_or_unauthorized(context, {at.topic for at in absent})
            found = set()
            for at in absent:
                topic = topics.get(at.topic)
                if at.topic not in topics or (
                    topic is not None
                    and at.partition >= topic.partitions
                    and stored[at].source_topic_id != topic.topic_id
                ):
                    found.add(at)
            return found

        if found := lacking():
            context.check_brokers()
            found &= lacking()
        return found

    def _stored(self) -> dict[TopicPartition, Progress]:
        """Return the progress of topics that the flow selects, under their current target names."""
        context = self._context
        if not context.progress.was_read:
            context.progress.read_to_end()
        return {
            TopicPartition(key.topic, key.partition): progress
            for key, progress in context.progress.stored(context.source_cluster_id).items()
            if context.topics.matches(key.topic)
            and key.target_topic == context.policy.target_topic(key.topic)
        }

    def _settle(
        self, topic: str, stored: Mapping[TopicPartition, Progress], *, exists: bool
    ) -> dict[TopicPartition, Loss]:
        """Store the losses of a topic's deleted partitions, and return the losses to report.

        If there are none, the progress of partitions that are not failed over is purged. ``exists``
        states that a topic with this name exists again, with fewer partitions.
        """
        context = self._context
        judged = {
            at: one
            for at in stored
            if (one := self._judge(at, stored[at], exists=exists)) is not None
        }
        changed = {at: one for at, one in judged.items() if one != stored[at]}
        context.progress.write({context.progress_key(at): one for at, one in changed.items()})
        losses = {at: one.loss for at, one in judged.items() if one.loss is not None}
        now_s = context.clock.time()
        for at in changed.keys() & losses.keys():
            why = sentence(context, at, losses[at])
            log.error("data loss", flow=context.name, partition=str(at), why=why)
        copied = [at for at, one in stored.items() if one.switch is None]
        if copied and not losses:
            context.progress.purge(map(context.progress_key, copied))
            purged = len(copied)
            what = "partitions" if exists else "topic"
            log.info(f"progress of deleted {what} purged", flow=context.name, topic=topic, n=purged)
        return {at: loss for at, loss in losses.items() if is_shown(loss, now_s)}

    def _judge(self, at: TopicPartition, progress: Progress, *, exists: bool) -> Progress | None:
        """Return progress with its loss and the policy's action, or None without a loss."""
        context = self._context
        if at.topic == HEARTBEATS or context.resets.time_ms(at) > progress.reset_ms:
            return None
        end = max(self._ends.get(at, 0), progress.source_end)
        loss = progress.loss
        if loss is None or not _is_deletion(loss):
            # The topic was in use until it was created again. If the end of its log was not
            # observed, it is unknown whether all of it was copied.
            unseen = exists and at not in self._ends
            loss = deleted_on_source(progress, end, context.now_ms, unseen=unseen)
        if loss is None:
            return None
        if loss.unresolved:
            loss = replace(loss, action=_ACTIONS[context.spec.on_data_loss])
        return replace(progress.with_loss(loss), source_end=end)


def existing_or_unauthorized(context: FlowContext, topics: Set[str]) -> Mapping[str, Topic | None]:
    """Return the topics that exist on the source.

    The value is None for a topic that the flow may not describe. A missing topic is
    requested again, after a check that no broker of another cluster responds.
    """
    present = _described(context.source, topics)
    if absent := set(topics) - present.keys():
        context.check_brokers()
        present |= _described(context.source, absent)
    return present


def _described(source: Admin, topics: Set[str]) -> dict[str, Topic | None]:
    try:
        return dict(source.describe(topics))
    except Fatal:
        if len(topics) == 1:
            return dict.fromkeys(topics)
    return {name: one for topic in topics for name, one in _described(source, {topic}).items()}


def _is_deletion(loss: Loss) -> bool:
    return loss.cause is LossCause.SOURCE_DELETED


class MadeTopics:
    """Topic that records the copies which flows of a source have created. Not thread-safe."""

    def __init__(self, context: FlowContext) -> None:
        self.topic = made_topics_topic(context.spec.source.alias)
        self._log = CompactedLog(
            self.topic,
            context,
            "made topics",
            earlier=earlier_name(self.topic),
            consequence=" (what was made before is then never deleted)",
        )
        self._known: dict[str, MadeTopic] = {}

    def read(self) -> Mapping[str, MadeTopic]:
        """Return all recorded copies by name; create the topic if it is missing.

        Raise the errors of its creation.
        """
        if self._log.at_start:
            self._known.clear()
        for message in self._log.read():
            name, value = (message.key() or b"").decode(errors="replace"), message.value()
            if value is None:
                self._known.pop(name, None)
                continue
            try:
                self._known[name] = MadeTopic.decode(value)
            except ValueError as error:
                log.warning("unreadable topic", offset=message.offset(), why=str(error))
        return dict(self._known)

    def remember(self, made: Mapping[str, MadeTopic]) -> None:
        """Record copies that were just created."""
        self._write({name: one.encode() for name, one in made.items()})

    def forget(self, names: Collection[str]) -> None:
        """Remove copies that were deleted, or replaced by other topics."""
        self._write(dict.fromkeys(names))

    def close(self) -> None:
        self._log.close()

    def _write(self, values: Mapping[str, bytes | None]) -> None:
        self._log.write(Keyed(name.encode(), value) for name, value in values.items())


_SHOWN_S = 3600.0
"""Time in seconds for which the condition names deleted copies."""
_MAX_NAMED_TOPICS = 10


class TopicDeleter:
    """Deletion of copies whose source topics were deleted. Not thread-safe.

    It raises no errors, because records are copied even if a deletion fails. The condition reports
    what prevents deletion.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._topics = MadeTopics(context)
        self._made: set[str] = set()
        """Source topics whose copies were just created and are not recorded yet."""
        self._absent_since: dict[str, float] = {}
        """Monotonic time at which the source topic of a copy was first missing, by copy."""
        self._deleted: dict[str, float] = {}
        """Monotonic time at which each copy was deleted."""
        self.conditions: tuple[Condition, ...] = ()

    def made(self, topics: Collection[str]) -> None:
        """Note that the flow has just created the copies of these source topics."""
        if self._mode is not TopicDeletionMode.DISABLED:
            self._made.update(topics)

    def poll(self, source_topics: Collection[str], in_use: Set[str]) -> None:
        """Delete copies that are due.

        Args:
            source_topics: Topics that the source has just listed.
            in_use: Source topics of which a task has partitions.
        """
        if self._mode is TopicDeletionMode.DISABLED:
            self._absent_since, self._deleted, self.conditions = {}, {}, ()
            return
        try:
            self._remember()
            self._follow(source_topics, in_use)
        except HeadraceError as error:
            self._report(Reason.DELETION_REFUSED, f"no copy is deleted: {error}")

    def close(self) -> None:
        self._topics.close()

    @property
    def _mode(self) -> TopicDeletionMode:
        return self._context.spec.topic_deletion.mode

    def _remember(self) -> None:
        if not self._made:
            return
        context, names = self._context, {}
        for topic in self._made:
            names[context.policy.target_topic(topic)] = topic
        self._topics.read()  # creates the topic
        found = context.target.describe(names)
        id = context.source_cluster_id
        self._topics.remember(
            {name: MadeTopic(one.topic_id, id, names[name]) for name, one in found.items()}
        )
        self._made.difference_update(names[name] for name in found)

    def _follow(self, source_topics: Collection[str], in_use: Set[str]) -> None:
        context, now_s = self._context, self._context.clock.monotonic()
        wanted = context.spec.topic_deletion
        absent = {
            name: one
            for name, one in self._topics.read().items()
            if one.source_cluster_id == context.source_cluster_id
            and context.topics.matches(one.source)
            and context.policy.target_topic(one.source) == name
            and one.source not in source_topics
        }
        if absent:
            sources = {one.source for one in absent.values()}
            known = existing_or_unauthorized(context, sources)
            absent = self._as_made({n: one for n, one in absent.items() if one.source not in known})
        since = self._absent_since
        self._absent_since = {name: since.get(name, now_s) for name in absent}
        due = {
            name: one
            for name, one in absent.items()
            if now_s - self._absent_since[name] >= wanted.delay_seconds and one.source not in in_use
        }
        kept = self._retention_reasons(due)
        deletable = sorted(due.keys() - kept.keys())
        if len(deletable) > wanted.max_topics:
            self._report(
                Reason.DELETION_REFUSED,
                f"{len(deletable)} copies have no source any more, and spec.topicDeletion."
                f"maxTopics is {wanted.max_topics}: none is deleted ({_listed(deletable)}). Raise "
                "it for as long as it takes, or delete them yourself",
            )
            return
        if self._mode is TopicDeletionMode.ENABLED:
            for name in deletable:
                try:
                    self._delete(name)
                except Fatal as error:  # it concerns this copy alone
                    kept[name] = str(error)
            deletable = []
        self._show(deletable, kept, sorted(absent.keys() - due.keys()))

    def _as_made(self, absent: Mapping[str, MadeTopic]) -> dict[str, MadeTopic]:
        """Return the copies that are still the topics that the flow created; forget the others."""
        there = self._context.target.describe(absent)
        same = {
            name: one
            for name, one in absent.items()
            if name in there and there[name].topic_id == one.topic_id != NO_TOPIC_ID
        }
        self._topics.forget(absent.keys() - same.keys())
        return same

    def _retention_reasons(self, due: Mapping[str, MadeTopic]) -> dict[str, str]:
        """Return the reason for each due copy that must not be deleted."""
        if not due:
            return {}
        context = self._context
        context.progress.read_to_end()
        kept = {}
        for key, one in context.progress.stored(context.source_cluster_id).items():
            if key.target_topic not in due:
                continue
            if one.switch is not None:
                kept[key.target_topic] = "it was failed over"
            elif one.loss is not None and one.loss.unresolved:
                kept[key.target_topic] = "records of its source were lost"
        for group, topics in groups_in_use(context.target).items():
            for name in due.keys() & topics:
                kept[name] = f"group {group} reads it"
        return kept

    def _delete(self, name: str) -> None:
        self._context.target.delete_topic(name)
        log.warning("copy deleted, as its source was", flow=self._context.name, topic=name)
        self._deleted[name] = self._context.clock.monotonic()
        self._absent_since.pop(name, None)
        self._topics.forget([name])

    def _show(self, would: list[str], kept: Mapping[str, str], waiting: list[str]) -> None:
        now_s = self._context.clock.monotonic()
        self._deleted = {n: at for n, at in self._deleted.items() if now_s - at < _SHOWN_S}
        parts = []
        if kept:
            why = "; ".join(f"{name}: {reason}" for name, reason in sorted(kept.items()))
            parts.append((Reason.DELETION_REFUSED, f"kept: {why}"))
        if would:
            parts.append((Reason.DELETION_DRY_RUN, f"would be deleted: {_listed(would)}"))
        if waiting:
            after_s = self._context.spec.topic_deletion.delay_seconds
            each = f"their sources are deleted, and they are {after_s} s later: {_listed(waiting)}"
            parts.append((Reason.DELETION_PENDING, each))
        if self._deleted:
            parts.append((Reason.COPIES_DELETED, f"deleted: {_listed(sorted(self._deleted))}"))
        if parts:
            self._report(parts[0][0], "; ".join(text for _, text in parts))
        else:
            self.conditions = ()

    def _report(self, reason: Reason, message: str) -> None:
        if not self.conditions or self.conditions[0].message != message:
            log.warning("topic deletion", flow=self._context.name, reason=str(reason), why=message)
        self.conditions = (
            Condition(
                type=ConditionType.TOPIC_DELETION,
                status=ConditionStatus.TRUE,
                reason=reason,
                message=message[:MAX_MESSAGE_LENGTH],
            ),
        )


def _listed(names: list[str]) -> str:
    return first_few(names, _MAX_NAMED_TOPICS)
