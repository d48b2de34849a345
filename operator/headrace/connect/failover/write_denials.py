"""Writes to the source are denied by ACLs during a planned fail-over, and allowed again."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from headrace.api import denials_topic
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.added_acls import AddedAcls
from headrace.errors import Fatal, HeadraceError
from headrace.logs import get_logger
from headrace.replication import TopicAcl, write_denial

log = get_logger(__name__)


def deny_writes(context: FlowContext, topics: Collection[str]) -> None:
    """Of everybody but super users. One that somebody had denied before is not ours to allow again.

    Raises ``Fatal`` without the right, or where brokers know no ACLs: nothing is changed then.
    """
    source = context.clients.acls(context.source_access)
    with _remembered(context) as added:
        with _explained(context, "denied"):
            there = {TopicAcl(**one) for one in source.topic_acls()}
        new = {write_denial(topic) for topic in topics} - there
        ours = added.read()
        added.remember(new - ours)
        try:
            with _explained(context, "denied"):
                source.add_acls([one._asdict() for one in new])
        except HeadraceError:
            with suppress(HeadraceError):  # what it could not add, it cannot remove either
                source.remove_acls([one._asdict() for one in new])
                added.forget(new - ours)
            raise
    log.info("writes denied", flow=context.name, topics=len(topics))


def allow_writes(context: FlowContext) -> frozenset[str]:
    """Remove what ``deny_writes`` has added; the topics. Raises as that does."""
    with _remembered(context) as added:
        if not added.exists():
            return frozenset()  # a user who may not see the topic has denied nothing
        ours = {one for one in added.read() if context.topics.matches(one.topic)}
        if ours:
            with _explained(context, "allowed again"):
                source = context.clients.acls(context.source_access)
                source.remove_acls([one._asdict() for one in ours])
            added.forget(ours)
    return frozenset(one.topic for one in ours)


def still_denied(context: FlowContext) -> frozenset[str]:
    """The topics that ``deny_writes`` has closed, and nobody has opened since."""
    with _remembered(context) as added:
        if not added.exists():
            return frozenset()
        return frozenset(one.topic for one in added.read() if context.topics.matches(one.topic))


@contextmanager
def _remembered(context: FlowContext) -> Iterator[AddedAcls]:
    added = AddedAcls(context, denials_topic(context.spec.source.alias))
    try:
        yield added
    finally:
        added.close()


@contextmanager
def _explained(context: FlowContext, done: str) -> Iterator[None]:
    try:
        yield
    except HeadraceError as error:
        raise Fatal(
            f"writes to topics of {context.source.name} cannot be {done}: {error}. It needs the "
            "rights Describe and Alter on that cluster (`kafka-acls.sh --add --cluster --operation "
            "Alter --operation Describe`), and an authorizer there"
        ) from error
