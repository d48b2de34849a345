"""Errors of the connection to a broker, and errors that brokers return."""

from confluent_kafka import KafkaError
from kio.schema.errors import ErrorCode

from headrace.errors import Fatal, HeadraceError, Retriable, Unreachable
from headrace.kafka.errors import translate


class ConnectionLost(Unreachable):
    """A connection ended or timed out before the response was read."""

    def __init__(self, message: str, *, may_have_arrived: bool) -> None:
        super().__init__(message)
        self.may_have_arrived = may_have_arrived
        """False if no byte of the request was sent.

        True if the broker may have processed the request.
        """


class Unanswered(ConnectionLost):
    """A request timed out. Its connection is closed."""


class ForeignBroker(Unreachable):
    """A broker of another cluster responds at an address of this cluster (KIP-1242)."""


class Garbled(ConnectionLost):
    """A response violates the protocol. Its connection is closed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, may_have_arrived=True)


class CorruptBatch(Retriable):
    """The content of a record batch is inconsistent or damaged. Fetching it again may help."""


class UnreadableBatch(Fatal):
    """A record batch that this client cannot decode, although the batch may be valid."""


class UnsupportedBroker(Fatal):
    """The broker does not serve a required request in a version that this client supports."""


class NoShareGroups(UnsupportedBroker):
    """The broker does not support share groups (KIP-932), or not their start offsets."""


class RequestRefused(HeadraceError):
    """A broker returned an error code. The subclass says whether a retry may help."""

    def __init__(self, message: str, code: ErrorCode) -> None:
        super().__init__(message)
        self.code = code


class RefusedForNow(RequestRefused, Retriable):
    """A temporary rejection. A later request may be accepted."""


class RefusedForGood(RequestRefused, Fatal):
    """A rejection whose cause a user must fix first."""


def refusal(code: ErrorCode, tried: str) -> HeadraceError:
    """Return the error for a broker's error code.

    ``tried`` has the same meaning as in ``kafka.errors.translate``. Codes of failed logins,
    unreachable brokers and active groups return ``AuthenticationFailed``, ``Unreachable`` and
    ``GroupActive``. All others return a ``RequestRefused``.
    """
    error = translate(KafkaError(code.value), tried)
    if isinstance(error, Fatal):
        return RefusedForGood(str(error), code)
    return RefusedForNow(str(error), code) if type(error) is Retriable else error


def check(code: ErrorCode, tried: str) -> None:
    """Raise the error for a code other than 0."""
    if code is not ErrorCode.none:
        raise refusal(code, tried)
