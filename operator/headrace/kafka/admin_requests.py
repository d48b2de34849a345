"""Requests of an admin client to one cluster: their answers in time, or why there is none."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.api import ClusterAccess
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.clients import client_config, construct
from headrace.kafka.diagnosis import diagnose, is_advertised
from headrace.kafka.errors import AuthenticationFailed, translate
from headrace.kafka.renewal import Renewed
from headrace.kafka.tokens import tokens_of

T = TypeVar("T")

GRACE_S = 5.0
"""The client's own time-outs come first, unless this process was frozen meanwhile."""
_POLL_S = 0.2
_BELIEVED_S = 1.0
"""So long no broker can be reached before that is an answer: a name has several addresses, which
are tried in turn, and the client tries a refused one again after 0.1 s."""

_UNANSWERED = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT}


class Requests:
    """Each waits at most ``timeout_s`` and raises ``Retriable`` or ``Fatal``. Thread-safe."""

    def __init__(self, cluster: ClusterAccess, timeout_s: float) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._client_error: KafkaError | None = None
        """What the client reported last of its connections, other than that there are none."""
        self._advertised: KafkaError | None = None
        """The last of them of a broker at the address that it gives itself. The client repeats the
        same error after 30 s only, and requests fail more often: it counts until an answer."""
        self._all_down: KafkaError | None = None
        """That no broker can be reached, as the client reported since the last request began."""
        self.served = False
        """Whether the leader of a partition, or the controller, ever answered: then a broker that
        cannot be reached is down, and its partitions get another leader."""
        self._renewed = Renewed(cluster, self._make)

    @property
    def client(self) -> AdminClient:
        """Hold it until the answer is there: when Secrets have changed, another thread has it
        replaced, and a client that nobody holds is destroyed with the requests on their way."""
        return self._renewed.get()

    def _make(self) -> AdminClient:
        # The address family of a name is tried in turn; a dead one must not eat the whole time-out.
        tuning = {"socket.connection.setup.timeout.ms": 5_000}
        config = tuning | client_config(self._cluster) | {"error_cb": self._on_error}
        return construct(AdminClient, self._cluster, config)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._all_down = error
        else:
            self._client_error = error
            if is_advertised(self._cluster, error):
                self._advertised = error

    def renew(self) -> None:
        """Have a new client make the next request. This one may never connect again: so librdkafka
        does after a broker that is fenced has answered with no brokers (its issue 5301)."""
        self._renewed.forget()

    def call(self, tried: str, call: Callable[[], T]) -> T:
        """Send a request; ``tried`` is what it does, for messages."""
        self._client_error = self._all_down = None
        try:
            return call()
        except KafkaException as error:
            raise self.failed(error, tried) from error

    def result(self, tried: str, future: "Future[T]") -> T:
        """Wait for an answer."""
        waited_s = self._timeout_s + GRACE_S
        began = time.monotonic()
        while True:
            try:
                answer = future.result(timeout=min(_POLL_S, waited_s))
            except TimeoutError:
                passed_s = time.monotonic() - began
                if passed_s >= waited_s:
                    self.renew()
                    message = f"could not {tried}: no answer in time ({waited_s:.0f} s)"
                    raise Retriable(message) from None
                if passed_s >= _BELIEVED_S and (why := self._unreachable(tried)):
                    raise why from None
            except KafkaException as error:
                raise self.failed(error, tried) from error
            else:
                self._advertised = None
                return answer

    def _unreachable(self, tried: str) -> HeadraceError | None:
        """Why nothing can answer, long before the client gives up."""
        self._poll()
        failed = self._all_down
        if failed is None and not self.served and self._client_error is not None:
            failed = (
                self._client_error if is_advertised(self._cluster, self._client_error) else None
            )
        if failed is None:
            return None
        return self._diagnosed(tried, failed)

    def failed(self, error: KafkaError | KafkaException, tried: str) -> HeadraceError:
        """Our error for the client's, with what is known of the connections."""
        self._poll()
        reason: KafkaError = error if isinstance(error, KafkaError) else error.args[0]
        if reason.code() in _UNANSWERED:
            self.renew()
        return self._diagnosed(tried, error)

    def _poll(self) -> None:
        """Receive what happened meanwhile; a client that is given up is not replaced for that."""
        if (client := self._renewed.current) is not None:
            client.poll(0)

    def _diagnosed(self, tried: str, error: KafkaError | KafkaException) -> HeadraceError:
        reported = self._client_error or self._advertised
        failure = diagnose(self._cluster, tried, translate(error, tried), reported)
        tokens = tokens_of(self._cluster)
        if tokens is not None and isinstance(failure, AuthenticationFailed):
            # The client keeps its token for most of the token's life, and brokers refuse it.
            tokens.discard()
            self.renew()
        return failure
