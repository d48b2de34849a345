"""Translates librdkafka's errors into headrace's errors, which say what failed and what to do."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from headrace.api import Reason
from headrace.errors import Fatal, HeadraceError, Retriable, Unreachable


class AccessDenied(Retriable):
    """Failure that a user must fix on the cluster.

    The failed operation is retried, so that headrace notices the fix.
    """

    reason: Reason


class SecretMissing(AccessDenied):
    """A Secret or one of its keys is missing or unusable."""

    reason = Reason.SECRET_MISSING


class AuthenticationFailed(AccessDenied):
    """The brokers reject the user, the password or the SASL mechanism."""

    reason = Reason.AUTHENTICATION_FAILED


class TokenUnavailable(AuthenticationFailed):
    """The OAuth token endpoint did not return a token."""


class TlsFailed(AccessDenied):
    """No TLS connection could be established that both sides accept."""

    reason = Reason.TLS_FAILED


class GroupActive(Retriable):
    """The group has members, so that only its members may commit offsets."""


_DAMAGED = (
    "the log is damaged there, or in a form that this client cannot read: compare with "
    "kafka-dump-log on the partition's brokers"
)
# Errors that only an administrator can correct. A retry would fail again.
_FATAL = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant the principal permissions on this topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant the principal permissions on this group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant the principal permissions on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant permissions on the transactional id",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic on that cluster",
    KafkaError.RECORD_LIST_TOO_LARGE: "raise max.message.bytes of the topic on that cluster",
    KafkaError.INVALID_RECORD: "the broker refused the record: its log names the rule",
    KafkaError.INVALID_TIMESTAMP: (
        "the topic refuses timestamps so far from the broker's clock: raise its "
        "message.timestamp.before.max.ms or message.timestamp.after.max.ms"
    ),
    KafkaError.POLICY_VIOLATION: "the cluster's policy forbids this: ask its administrator",
    KafkaError.INVALID_CONFIG: "change the setting that the broker names",
    KafkaError.INVALID_REPLICATION_FACTOR: "ask for no more replicas than there are brokers",
    KafkaError.INVALID_PARTITIONS: "the broker refuses this number of partitions",
    KafkaError._BAD_MSG: _DAMAGED,
    KafkaError._BAD_COMPRESSION: _DAMAGED,
    KafkaError._NOT_IMPLEMENTED: _DAMAGED,  # unknown codec or format: the client skips the batch
}
# Errors from which the client recovers after a user has fixed the cause.
_TEMPORARY = {
    KafkaError.KAFKA_STORAGE_ERROR: (
        "a log directory of the broker has failed, as it does when its disk is full: its log says "
        "why; make room, and restart it"
    ),
}
_LOGIN = {
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError._AUTHENTICATION,
}
_OF_MEMBERS = {
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
}
_UNREACHABLE_CODES = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
}


def translate(error: KafkaError | KafkaException, tried: str) -> HeadraceError:
    """Return headrace's error for a librdkafka error.

    ``tried`` says what failed and where, for example ``"read topics of east"``.
    """
    kafka_error = error.args[0] if isinstance(error, KafkaException) else error
    if not isinstance(kafka_error, KafkaError):
        return Fatal(f"could not {tried}: {kafka_error}")
    code = kafka_error.code()
    if code in _UNREACHABLE_CODES:
        return Unreachable(
            f"could not {tried}: no broker answered ({error_text(kafka_error)}); "
            "check that the address is right and the brokers run"
        )
    if code in _LOGIN:
        return AuthenticationFailed(f"could not {tried}: {error_text(kafka_error)}")
    if code == KafkaError._SSL:
        return TlsFailed(f"could not {tried}: {error_text(kafka_error)}")
    message = f"could not {tried}: {kafka_error.str()} ({kafka_error.name()})"
    if advice := _FATAL.get(code):
        return Fatal(f"{message}; {advice}")
    if code in _TEMPORARY:
        message = f"{message}; {_TEMPORARY[code]}"
    # Errors that are fatal to this client are also Retriable, because a new client may succeed.
    return GroupActive(message) if code in _OF_MEMBERS else Retriable(message)


@contextmanager
def translated(tried: str) -> Iterator[None]:
    """Raise headrace's errors in place of librdkafka's.

    ``tried`` has the same meaning as in ``translate``.
    """
    try:
        yield
    except KafkaException as error:
        raise translate(error, tried) from error
    except BufferError as error:
        raise Retriable(f"could not {tried}: the producer's queue is full") from error


def error_text(error: KafkaError) -> str:
    """Return the error message without the parts that differ at each report."""
    text = re.sub(
        r" \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)", "", error.str()
    )
    return re.sub(r"^\w+://[^ ]*?: ", "", text)


def is_about_group(error: KafkaError) -> bool:
    """Return True for an error about the group of a consumer with manual assignment.

    librdkafka looks up the coordinator of the group even for such a consumer, and may lack the
    permission.
    """
    return error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def code_of(error: HeadraceError | None) -> int | None:
    """Return the Kafka error code that caused this error, or None."""
    cause = error.__cause__ if error else None
    return cause.args[0].code() if isinstance(cause, KafkaException) else None
