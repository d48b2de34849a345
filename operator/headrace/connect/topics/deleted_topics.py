"""Topics and partitions that were deleted on the source: their losses and their progress."""

from collections.abc import Mapping, Set
from dataclasses import replace

from headrace.api import HEARTBEATS, LossAction, LossCause, OnDataLoss, TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.loss_report import is_shown, sentence
from headrace.connect.topics.losses import deleted_on_source
from headrace.errors import Fatal
from headrace.kafka import Admin, Topic
from headrace.logs import get_logger
from headrace.replication import Loss, Progress

log = get_logger(__name__)

_ACTIONS = {
    OnDataLoss.FAIL: LossAction.STOPPED,
    OnDataLoss.RESTART: LossAction.RESTARTED,
    OnDataLoss.CONTINUE: LossAction.CONTINUED,
}


class DeletedTopics:
    """The partitions that have progress and that the source has no longer.

    Their progress is kept while it has a loss, until a reset, as a fail-over lists the loss.
    Without a loss it is purged. A partition counts as deleted when the source did not have it in
    two successive discoveries: a list may omit topics for a moment, or for lack of permissions. A
    topic that is created again with fewer partitions deletes the others. For the partitions that
    exist again, the task that copies them finds the loss. Not thread-safe.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._ends: dict[TopicPartition, int] = {}
        self._absent: Set[TopicPartition] = frozenset()
        self.losses: Mapping[TopicPartition, Loss] = {}
        """As stored."""

    def saw(self, ends: Mapping[TopicPartition, int]) -> None:
        """These are the ends of the source's logs now."""
        self._ends |= ends

    def find(self, there: Mapping[str, int], held: Set[TopicPartition]) -> None:
        """Find partitions that were deleted, and store what was lost with them.

        ``there`` is the number of partitions of each topic of the source. ``held`` are partitions
        whose progress a task may still store. Raises ``Retriable`` while brokers do not answer.
        """
        stored = self._stored()
        absent: Set[TopicPartition] = {
            at for at in stored if at.partition >= there.get(at.topic, 0)
        }
        if absent:
            absent = self._confirmed(absent, stored)
            self._context.progress.read_to_end()
            stored = self._stored()
        known = {at for at, one in stored.items() if one.loss and _is_deletion(one.loss)}
        busy = held | {
            at for at in absent if at.topic in {one.topic for one in held} - there.keys()
        }
        gone = stored.keys() & absent & (self._absent | known) - busy
        self._absent = absent
        losses: dict[TopicPartition, Loss] = {}
        for topic in sorted({at.topic for at in gone}):
            of_topic = {at: stored[at] for at in sorted(gone) if at.topic == topic}
            losses |= self._settle(topic, of_topic, exists=topic in there)
        self.losses = losses

    def _confirmed(
        self, absent: Set[TopicPartition], stored: Mapping[TopicPartition, Progress]
    ) -> Set[TopicPartition]:
        """Return the partitions that the source also lacks when it describes their topics.

        A topic can only have fewer partitions than before if it was created again, so its id is
        another one.
        """
        context = self._context

        def lacking() -> set[TopicPartition]:
            topics = described(context, {at.topic for at in absent})
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
        """Of the topics that the flow is to copy, and copies to where it would now."""
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
        """Store the losses of deleted partitions of a topic; without any, purge their progress.

        ``exists`` says whether there is a topic of this name again, with fewer partitions.
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
        if not losses:
            context.progress.purge(map(context.progress_key, stored))
            purged = len(stored)
            what = "partitions are gone" if exists else "topic is gone"
            log.info(f"{what}, their progress purged", flow=context.name, topic=topic, n=purged)
        return {at: loss for at, loss in losses.items() if is_shown(loss, now_s)}

    def _judge(self, at: TopicPartition, progress: Progress, *, exists: bool) -> Progress | None:
        """Return progress with its loss, answered by the policy, or None without a loss."""
        context = self._context
        if at.topic == HEARTBEATS or context.resets.time_ms(at) > progress.reset_ms:
            return None
        end = max(self._ends.get(at, 0), progress.source_end)
        loss = progress.loss
        if loss is None or not _is_deletion(loss):
            # A topic that was created again was in use: of a log whose end was not watched until
            # then, nobody can say that all of it was copied.
            unseen = exists and at not in self._ends
            loss = deleted_on_source(progress, end, context.now_ms, unseen=unseen)
        if loss is None:
            return None
        if loss.unresolved:
            loss = replace(loss, action=_ACTIONS[context.spec.on_data_loss])
        return replace(progress.with_loss(loss), source_end=end)


def described(context: FlowContext, topics: Set[str]) -> Mapping[str, Topic | None]:
    """Return the topics that the source has; None for those that the flow may not describe.

    A topic is only absent if no foreign broker answers at the source's addresses.
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
