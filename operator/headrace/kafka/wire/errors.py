"""Errors between this client and a broker."""

from confluent_kafka import KafkaError
from kio.schema.errors import ErrorCode

from headrace.errors import Fatal, HeadraceError, Retriable, Unreachable
from headrace.kafka.errors import translate


class ConnectionLost(Unreachable):
    """A connection ended, or did not answer in time, before the response was read."""

    def __init__(self, message: str, *, may_have_arrived: bool) -> None:
        super().__init__(message)
        self.may_have_arrived = may_have_arrived
        """False: no byte of the request was sent. True: the broker may have carried it out."""


class Unanswered(ConnectionLost):
    """A request without an answer in time; its connection is closed."""


class ForeignBroker(Unreachable):
    """A broker of another cluster answers at an address of this one (KIP-1242)."""


class Garbled(ConnectionLost):
    """A response that breaks the protocol; its connection is closed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, may_have_arrived=True)


class CorruptBatch(Retriable):
    """Record batches that contradict themselves; fetching them again may help."""


class UnreadableBatch(Fatal):
    """A record batch that this client cannot take apart; it may be all right."""


class UnsupportedBroker(Fatal):
    """A broker that does not serve a version of a request that this client speaks."""


class NoShareGroups(UnsupportedBroker):
    """A broker without share groups (KIP-932), or without their start offsets."""


class RequestRefused(HeadraceError):
    """A broker answered with an error code: ``RefusedForNow`` or ``RefusedForGood``."""

    def __init__(self, message: str, code: ErrorCode) -> None:
        super().__init__(message)
        self.code = code


class RefusedForNow(RequestRefused, Retriable):
    """The same request may be accepted later."""


class RefusedForGood(RequestRefused, Fatal):
    """A rejection that a user must resolve first."""


def refusal(code: ErrorCode, tried: str) -> HeadraceError:
    """Return the error for a broker's code; ``tried`` as for ``kafka.errors.translate``.

    A failed login is ``AuthenticationFailed``; all others are ``RequestRefused``.
    """
    error = translate(KafkaError(code.value), tried)
    if isinstance(error, Fatal):
        return RefusedForGood(str(error), code)
    return RefusedForNow(str(error), code) if type(error) is Retriable else error


def check(code: ErrorCode, tried: str) -> None:
    """Raise the error for a code that is not 0."""
    if code is not ErrorCode.none:
        raise refusal(code, tried)
