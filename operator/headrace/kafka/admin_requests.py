"""Requests of the admin client, with time-outs, retries and renewed credentials."""

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Generic, TypeVar
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.api import ClusterAccess
from headrace.errors import GaveUp, HeadraceError, Retriable, Unreachable
from headrace.kafka.clients import client_config, construct
from headrace.kafka.diagnosis import diagnose, is_advertised
from headrace.kafka.errors import AuthenticationFailed, SecretMissing, translate
from headrace.kafka.security import read_credentials, tokens_of
from headrace.kafka.wire import (
    ClusterClient,
    ConnectionSettings,
    EventLoop,
    ForeignBroker,
    start,
)

# librdkafka reads certificates only when a client is created. A client that outlives its
# certificates must be replaced, so owners of clients check regularly whether the Secret files have
# changed.

SECRETS_POLL_INTERVAL_S = 1.0
"""Interval in seconds between two checks of the Secret files. A kubelet needs up to a minute to
update the files of a changed Secret."""

Client = TypeVar("Client")


class Renewal:
    """Detects changes of the Secret files of clusters.

    The files are compared with their content when this object was created. Create it before the
    clients that read the files.
    """

    def __init__(
        self, *clusters: ClusterAccess, poll_interval_s: float = SECRETS_POLL_INTERVAL_S
    ) -> None:
        self._clusters = [cluster for cluster in clusters if any(cluster.spec.uses())]
        self._poll_interval_s = poll_interval_s
        self._known = self._digests()
        self._next_poll_s = time.monotonic() + poll_interval_s

    @property
    def due(self) -> bool:
        """True if the Secret files have changed since this object was created.

        The files are read at most once every ``poll_interval_s``.
        """
        if not self._clusters or time.monotonic() < self._next_poll_s:
            return False
        self._next_poll_s = time.monotonic() + self._poll_interval_s
        return self._digests() != self._known

    def _digests(self) -> list[str]:
        return [_state(cluster) for cluster in self._clusters]


def _state(cluster: ClusterAccess) -> str:
    try:
        return read_credentials(cluster).digest
    except SecretMissing as missing:
        return str(missing)


class ReloadingClient(Generic[Client]):
    """Client that is created on first use, and created again when its Secret files have changed.

    Thread-safe. Callers may continue to use a replaced client.
    """

    def __init__(
        self,
        cluster: ClusterAccess,
        make: Callable[[], Client],
        poll_interval_s: float = SECRETS_POLL_INTERVAL_S,
    ) -> None:
        self._cluster = cluster
        self._make = make
        self._poll_interval_s = poll_interval_s
        self._client: Client | None = None
        self._renewal = Renewal()
        self._making = threading.Lock()

    def get(self) -> Client:
        """Return the client. Raise the errors of creating it."""
        with self._making:
            if self._client is None or self._renewal.due:
                self._renewal = Renewal(self._cluster, poll_interval_s=self._poll_interval_s)
                self._client = None
                self._client = self._make()
            return self._client

    @property
    def current(self) -> Client | None:
        """The existing client, or None."""
        return self._client

    def forget(self) -> None:
        """Discard the client. The next call of ``get`` creates a new one."""
        with self._making:
            self._client = None


T = TypeVar("T")

MakeAdminClient = Callable[[dict[str, Any]], AdminClient]
"""Creates a client from librdkafka's settings."""


@dataclass(frozen=True, slots=True)
class AdminTimings:
    """Times of admin requests, apart from the time-out of the request itself."""

    grace_s: float = 5.0
    """Time to wait beyond the client's own time-outs.

    The client's time-outs end first, unless this process was frozen.
    """
    poll_interval_s: float = 0.2
    """Interval between two checks of the errors that the client reported."""
    unreachable_after_s: float = 1.0
    """Time without a reachable broker after which a request fails.

    In a shorter time, the client might not try all addresses of a host name. It tries them in turn,
    and retries a refused connection after 0.1 s.
    """
    secrets_poll_interval_s: float = SECRETS_POLL_INTERVAL_S
    """Interval between two checks of the Secret files."""


ADMIN_TIMINGS = AdminTimings()
"""Default times of admin requests."""

COMPARED_TIMEOUT_S = 2.0
"""Time limit in seconds for a comparison of cluster ids. A slower broker is probably down, and must
not delay requests to the other brokers."""
_UNANSWERED = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT}


class AdminRequests:
    """Sends requests of an admin client. Thread-safe.

    Each request takes at most ``timeout_s`` plus ``timings.grace_s``, and raises ``Retriable`` or
    ``Fatal``.
    """

    def __init__(
        self,
        cluster: ClusterAccess,
        timeout_s: float,
        make_client: MakeAdminClient,
        timings: AdminTimings,
    ) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._make_client = make_client
        self._timings = timings
        self._client_error: KafkaError | None = None
        """Last connection error that the client reported, other than "all brokers are down"."""
        self._advertised: KafkaError | None = None
        """Last connection error at an address that a broker advertises.

        The client reports the same error only every 30 s, but requests fail more often. The error
        is therefore kept until a request succeeds.
        """
        self._all_down: KafkaError | None = None
        """Error "all brokers are down", if the client reported it since the last request began."""
        self.served = False
        """True if a partition leader or the controller has ever responded.

        If so, an unreachable broker is treated as down, and its partitions get other leaders. If
        not, its advertised address may be wrong.
        """
        self._renewed = ReloadingClient(cluster, self._make, timings.secrets_poll_interval_s)

    @property
    def client(self) -> AdminClient:
        """The current client. Hold a reference to it until the response arrives.

        Another thread may replace the client when Secrets change. A client without references is
        destroyed, even with requests in flight.
        """
        return self._renewed.get()

    def _make(self) -> AdminClient:
        # The addresses of a host name are tried in turn. A dead address must not use up the
        # time-out.
        tuning = {"socket.connection.setup.timeout.ms": 5_000}
        config = tuning | client_config(self._cluster) | {"error_cb": self._on_error}
        return construct(self._make_client, self._cluster, config)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._all_down = error
        else:
            self._client_error = error
            if is_advertised(self._cluster, error):
                self._advertised = error

    def renew(self) -> None:
        """Use a new client for the next request.

        The current client may never connect again. For example, librdkafka does not reconnect after
        a fenced broker responded with an empty list of brokers (librdkafka issue 5301).
        """
        self._renewed.forget()

    def call(self, tried: str, call: Callable[[], T]) -> T:
        """Start a request by calling ``call``, and return its result.

        ``tried`` names the request in error messages.
        """
        self._client_error = self._all_down = None
        try:
            return call()
        except KafkaException as error:
            raise self.failed(error, tried) from error

    def result(self, tried: str, future: "Future[T]") -> T:
        """Wait for the result of ``future``.

        Raise ``Retriable`` or ``Fatal`` if the request fails or no broker is reachable.
        """
        waited_s = self._timeout_s + self._timings.grace_s
        began = time.monotonic()
        while True:
            try:
                answer = future.result(timeout=min(self._timings.poll_interval_s, waited_s))
            except TimeoutError:
                passed_s = time.monotonic() - began
                if passed_s >= waited_s:
                    self.renew()
                    message = f"could not {tried}: no answer in time ({waited_s:.0f} s)"
                    raise Retriable(message) from None
                late = passed_s >= self._timings.unreachable_after_s
                if late and (why := self._unreachable(tried)):
                    raise why from None
            except KafkaException as error:
                raise self.failed(error, tried) from error
            else:
                self._advertised = None
                return answer

    def _unreachable(self, tried: str) -> HeadraceError | None:
        """Return an error if the client reports that no broker is reachable, or None.

        The client itself would wait for the whole time-out.
        """
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
        """Return headrace's error for a client error, with the cause found by ``diagnose``."""
        self._poll()
        reason: KafkaError = error if isinstance(error, KafkaError) else error.args[0]
        if reason.code() in _UNANSWERED:
            self.renew()
        return self._diagnosed(tried, error)

    def _poll(self) -> None:
        """Process pending events of the current client. Does not create a client."""
        if (client := self._renewed.current) is not None:
            client.poll(0)

    def _diagnosed(self, tried: str, error: KafkaError | KafkaException) -> HeadraceError:
        reported = self._client_error or self._advertised
        failure = diagnose(self._cluster, tried, translate(error, tried), reported)
        tokens = tokens_of(self._cluster)
        if tokens is not None and isinstance(failure, AuthenticationFailed):
            # librdkafka keeps its token for most of the token's lifetime, although brokers reject
            # the token.
            tokens.discard()
            self.renew()
        return failure


_MAX_IDLE_S = 60.0
"""Idle time in seconds after which a wire client is not used again.

Brokers end logins and idle connections, by default after 10 minutes.
"""


class _WireClient:
    """Client of the wire protocol with its own loop. Not thread-safe.

    Each request takes at most ``timeout_s``. All requests of one ``run`` together take at most
    ``timings.grace_s`` longer.
    """

    def __init__(self, cluster: ClusterAccess, timeout_s: float, timings: AdminTimings) -> None:
        self._renewal = Renewal(cluster, poll_interval_s=timings.secrets_poll_interval_s)
        self._timeout_s = timeout_s
        self._grace_s = timings.grace_s
        self._used_s = time.monotonic()
        self._loop = EventLoop()
        settings = ConnectionSettings.of(cluster)
        settings = replace(
            settings,
            connect_timeout_s=min(settings.connect_timeout_s, timeout_s),
            request_timeout_s=min(settings.request_timeout_s, timeout_s),
        )
        self._cluster = ClusterClient(self._loop, cluster, settings)

    @property
    def outdated(self) -> bool:
        """True if the Secret files have changed, or the client was idle for too long."""
        return time.monotonic() - self._used_s > _MAX_IDLE_S or self._renewal.due

    def run(self, ask: Callable[[ClusterClient], Coroutine[Any, Any, T]]) -> T:
        """Run ``ask``, and return its result. Close the client after an error."""
        self._loop.run_once(0)  # connections that brokers have closed are not used
        try:
            found = self._loop.wait(start(ask(self._cluster)), self._timeout_s + self._grace_s)
        except BaseException:
            self.close()
            raise
        self._used_s = time.monotonic()
        return found

    def close(self) -> None:
        self._cluster.close()
        self._loop.close()


def _confirmed(
    known: Mapping[str, int], first: Mapping[str, int], second: Mapping[str, int]
) -> dict[str, int]:
    """Return the number of partitions that two of three answers have, for each topic.

    If all answers differ, the topic is growing, and its known or lower number counts. A topic that
    is left out would count as deleted.
    """
    found = {}
    for name in known.keys() | first.keys() | second.keys():
        answers = [known.get(name), first.get(name), second.get(name)]
        (count, times), *_ = Counter(answers).most_common(1)
        if times == 1:
            count = known.get(name) or min(one for one in answers if one)
        if count is not None:
            found[name] = count
    return found


def _close_all(clients: list[_WireClient]) -> None:
    while clients:
        clients.pop().close()


class ClusterAdmin:
    """Base of the admin classes of one cluster.

    Calls block for at most about ``timeout_s`` and raise ``Retriable`` or ``Fatal``.
    """

    def __init__(
        self,
        cluster: ClusterAccess,
        timeout_s: float = 10.0,
        *,
        make_client: MakeAdminClient = AdminClient,
        timings: AdminTimings = ADMIN_TIMINGS,
    ) -> None:
        self.name = cluster.name
        """Alias and address of the cluster, for messages."""
        self._access = cluster
        self._timeout_s = timeout_s
        self._timings = timings
        self._requests = AdminRequests(cluster, timeout_s, make_client, timings)
        self._topics: dict[str, int] = {}
        """Last known numbers of partitions by topic."""
        self._ids: dict[str, UUID | None] = {}
        """Last known topic ids by name."""
        self._idle: list[_WireClient] = []
        """Wire clients that no thread uses. They are closed when this object is closed or
        deleted."""
        weakref.finalize(self, _close_all, self._idle)

    def cluster_id(self) -> str:
        """Return the cluster id. Two addresses with equal ids belong to the same cluster."""
        client = self._requests.client
        tried = f"read the cluster id of {self.name}"
        future = self._requests.call(
            tried, lambda: client.describe_cluster(request_timeout=self._timeout_s)
        )
        return str(self._requests.result(tried, future).cluster_id)

    def expect(self, cluster_id: str) -> None:
        """Reject brokers with another cluster id in all requests of the wire client."""
        self._access = replace(self._access, cluster_id=cluster_id)
        _close_all(self._idle)

    def check_brokers(self, within_s: float = inf) -> None:
        """Raise ``Retriable`` if a broker of another cluster responds at a known address.

        Brokers that do not respond within ``within_s`` are ignored. The next request uses a new
        client, because librdkafka keeps the addresses that a foreign broker has advertised.
        """
        tried = f"compare the brokers of {self.name}"
        self._retried_on_wire(tried, lambda cluster: cluster.check_brokers(within_s))
        self._requests.renew()

    def _check_before_write(self) -> None:
        """Raise ``Retriable`` if a broker of another cluster responds.

        librdkafka does not compare cluster ids, and would write to that broker.
        """
        if self._access.cluster_id is not None:
            self.check_brokers(COMPARED_TIMEOUT_S)

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of every topic."""
        found = self._listed_topics()
        if found != self._topics:
            # No checksum covers the answer, so changes since the last one must be confirmed.
            found = _confirmed(self._topics, found, self._listed_topics())
        self._topics = found
        return dict(found)

    def _listed_topics(self) -> dict[str, int]:
        tried = f"list the topics of {self.name}"
        view = self._retried_on_wire(tried, lambda cluster: cluster.refresh(None))
        return {
            name: len(topic.partitions)
            for name, topic in view.topics.items()
            if not topic.error.value
        }

    def _on_wire(self, ask: Callable[[ClusterClient], Coroutine[Any, Any, T]]) -> T:
        """Run ``ask`` with a temporary client of the wire protocol, and return its result."""
        loop = EventLoop()
        cluster = ClusterClient(loop, self._access)
        try:
            return loop.wait(start(ask(cluster)), self._timeout_s)
        finally:
            cluster.close()
            loop.close()

    def _on_kept_wire(self, ask: Callable[[ClusterClient], Coroutine[Any, Any, T]]) -> T:
        """Run ``ask`` with a client that is kept for the next call, and return its result.

        No two threads use a client at the same time.
        """
        client: _WireClient | None = None
        with suppress(IndexError):  # there is no idle client
            while (client := self._idle.pop()).outdated:
                client.close()
                client = None
        client = client or _WireClient(self._access, self._timeout_s, self._timings)
        found = client.run(ask)
        self._idle.append(client)
        return found

    def _retried_on_wire(
        self, tried: str, ask: Callable[[ClusterClient], Coroutine[Any, Any, T]]
    ) -> T:
        """Return the result as ``_on_wire`` does. Raise ``Retriable`` if it takes too long.

        The error of a cluster that does not respond has the cause found by ``diagnose``.
        """
        try:
            return self._on_wire(ask)
        except ForeignBroker:
            raise
        except (GaveUp, Unreachable) as error:
            raise self._diagnosed(tried, error) from error

    def _diagnosed(
        self, tried: str, error: HeadraceError, client_error: KafkaError | None = None
    ) -> HeadraceError:
        """Return the error of a cluster that did not respond, with the cause found by ``diagnose``.

        ``client_error`` is the same error as librdkafka would report it.
        """
        failure = Unreachable(f"could not {tried}: {error}")
        return diagnose(self._access, tried, failure, client_error)

    def _on_wire_by_group(
        self,
        groups: Collection[str],
        ask: Callable[[ClusterClient], Coroutine[Any, Any, Mapping[str, T | HeadraceError]]],
    ) -> tuple[dict[str, T], dict[str, HeadraceError]]:
        """Return the result of each group, and an error for each group without a result.

        Raise no errors.
        """
        if not groups:
            return {}, {}
        try:
            answers = self._on_wire(ask)
        except HeadraceError as error:
            return {}, dict.fromkeys(groups, error)
        failed = {one: why for one, why in answers.items() if isinstance(why, HeadraceError)}
        found = {one: it for one, it in answers.items() if not isinstance(it, HeadraceError)}
        return found, failed
