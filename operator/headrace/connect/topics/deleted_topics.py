"""Topics that were deleted on the source: what of them was not copied, and what becomes of their
progress."""

from collections.abc import Collection, Mapping, Set
from dataclasses import replace

from headrace.api import HEARTBEATS, LossAction, LossCause, OnDataLoss, TopicPartition
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.loss_report import is_shown, sentence
from headrace.connect.topics.losses import deleted_on_source
from headrace.errors import Fatal
from headrace.kafka import Admin
from headrace.logs import get_logger
from headrace.replication import Loss, Progress

log = get_logger(__name__)

_ACTIONS = {
    OnDataLoss.FAIL: LossAction.STOPPED,
    OnDataLoss.RESTART: LossAction.RESTARTED,
    OnDataLoss.CONTINUE: LossAction.CONTINUED,
}


class DeletedTopics:
    """Progress is kept until its loss was accepted, and shown; without a loss it is purged.

    A topic counts as deleted when the source did not know its name in two successive discoveries: a
    list may omit topics for a moment, or for lack of rights. One that was created again is a
    matter of the task that copies it. One thread calls this.
    """

    def __init__(self, context: FlowContext) -> None:
        self._context = context
        self._ends: dict[TopicPartition, int] = {}
        self._absent: Set[str] = frozenset()
        self.losses: Mapping[TopicPartition, Loss] = {}
        """As stored."""

    def saw(self, ends: Mapping[TopicPartition, int]) -> None:
        """These are the ends of the source's logs now."""
        self._ends |= ends

    def find(self, there: Collection[str], held: Set[TopicPartition]) -> None:
        """``there``: the source's topics; ``held``: partitions whose progress a task may store yet.

        Raises ``Retriable`` while brokers do not answer.
        """
        stored = self._stored()
        absent = {at.topic for at in stored}.difference(there)
        if absent:
            absent -= described(self._context, absent)
            self._context.progress.read_to_end()
            stored = self._stored()
        known = {at.topic for at, one in stored.items() if one.loss and _is_deletion(one.loss)}
        gone = absent & (self._absent | known) - {at.topic for at in held}
        self._absent = absent
        losses: dict[TopicPartition, Loss] = {}
        for topic in sorted(gone):
            of_topic = {at: one for at, one in stored.items() if at.topic == topic}
            losses |= self._settle(topic, of_topic)
        self.losses = losses

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
        self, topic: str, stored: Mapping[TopicPartition, Progress]
    ) -> dict[TopicPartition, Loss]:
        """The losses of one topic: they are stored; without any its progress is purged."""
        context = self._context
        judged = {at: one for at in stored if (one := self._judge(at, stored[at])) is not None}
        changed = {at: one for at, one in judged.items() if one != stored[at]}
        context.progress.write({context.progress_key(at): one for at, one in changed.items()})
        losses = {at: one.loss for at, one in judged.items() if one.loss is not None}
        for at in changed.keys() & losses.keys():
            why = sentence(context, at, losses[at])
            log.error("data loss", flow=context.name, partition=str(at), why=why)
        if not losses:
            context.progress.purge(map(context.progress_key, stored))
            purged = len(stored)
            log.info("topic is gone, its progress purged", flow=context.name, topic=topic, n=purged)
        return losses

    def _judge(self, at: TopicPartition, progress: Progress) -> Progress | None:
        """With its loss, answered by the policy; None when there is none to be seen."""
        context = self._context
        if at.topic == HEARTBEATS or context.resets.time_ms(at) > progress.reset_ms:
            return None
        end = max(self._ends.get(at, 0), progress.source_end)
        loss = progress.loss
        if loss is None or not _is_deletion(loss):
            loss = deleted_on_source(progress, end, context.now_ms)
        if loss is None or not is_shown(loss, context.clock.time()):
            return None
        if loss.unresolved:
            loss = replace(loss, action=_ACTIONS[context.spec.on_data_loss])
        return replace(progress, loss=loss, source_end=end)


def described(context: FlowContext, topics: Set[str]) -> Set[str]:
    """Return the topics that the source has, or that the flow has no permission to describe.

    A topic is only absent if no foreign broker answers at the source's addresses.
    """
    present = set(_described(context.source, topics))
    if absent := set(topics) - present:
        context.check_brokers()
        present |= _described(context.source, absent)
    return present


def _described(source: Admin, topics: Set[str]) -> Set[str]:
    try:
        return source.describe(topics).keys()
    except Fatal:
        if len(topics) == 1:
            return topics
    return {topic for one in topics for topic in _described(source, {one})}


def _is_deletion(loss: Loss) -> bool:
    return loss.cause is LossCause.SOURCE_DELETED
