"""API client: connections, requests with time-outs and retries, and request metrics."""

import asyncio
import json
import math
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from prometheus_client import CollectorRegistry, Counter, Histogram
from yaml import YAMLError

from headrace.errors import HeadraceError, InvalidSpec, Retriable
from headrace.k8s.errors import NotFound, Unavailable, read_status, sentence, translate
from headrace.k8s.kinds import EVENT, LEASE, Kind, Object, Objects, kind_of
from headrace.telemetry import Described
from headrace.timing import Clock

TIMEOUT_S = 5.0
"""Time-out of a request in seconds, shorter than the 6 s of a Lease.

A healthy API server responds within milliseconds.
"""
ADMISSION_TIMEOUT_S = 35.0
"""Time-out of a write that admission webhooks see, in seconds.

Each webhook may take 10 s by default and 30 s at most. With failurePolicy Ignore, the API server
writes the object after a webhook's time-out, but only if the client still waits.
"""
ALL = "application/json"
"""Media type of whole objects."""

RequestListener = Callable[[str, Kind, str, float], None]
"""Receives the verb, the kind, the outcome and the duration in seconds of each request.

The outcome is ``Success``, ``Cancelled`` or the name of an error class of ``k8s.errors``.
"""


class ApiRequests:
    """Sends requests and translates errors, for ``Client``.

    Methods raise the errors of ``k8s.errors``. ``who`` is the subject of their messages.
    """

    def __init__(self, api: ApiClient, client_name: str) -> None:
        self._api = api
        self.client_name = client_name
        self.write_timeout_s = TIMEOUT_S
        """Time-out of writes in seconds. Writes of Leases and Events have the time-out of reads."""
        self.on_request: RequestListener = lambda verb, kind, outcome, took_s: None
        """Function that is called after every request. For a watch, it is called when the watch
        opens."""
        api.user_agent = client_name.removeprefix("the ").replace(" ", "-")

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    async def _send(
        self,
        verb: str,
        method: str,
        kind: Kind,
        namespace: str | None,
        name: str = "",
        *,
        subresource: str = "",
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = ALL,
        accept: str = ALL,
    ) -> Object:
        tried = sentence(self.client_name, verb, kind, namespace, name)
        path = kind.path(namespace, name, subresource)
        quick = method == "GET" or kind in (LEASE, EVENT)
        limit_s = TIMEOUT_S if quick else self.write_timeout_s
        timeout = aiohttp.ClientTimeout(total=limit_s, sock_connect=TIMEOUT_S)
        with self._trying(verb, kind, tried):
            async with await self._request(
                method,
                path,
                query or {},
                tried=tried,
                timeout=timeout,
                body=body,
                content_type=content_type,
                accept=accept,
            ) as response:
                return _read_object(await response.read(), tried, "kind")

    @contextmanager
    def _trying(self, verb: str, kind: Kind, tried: str) -> Iterator[None]:
        """Raise ``Unavailable`` if there is no answer, and report the outcome of a request."""
        began, outcome = time.monotonic(), "Cancelled"
        try:
            yield
            outcome = "Success"
        except HeadraceError as error:
            outcome = type(error).__name__
            raise
        except (aiohttp.ClientError, TimeoutError, OSError, config.ConfigException) as error:
            outcome = Unavailable.__name__
            raise no_answer(tried, error) from error
        finally:
            self.on_request(verb, kind, outcome, time.monotonic() - began)

    async def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        *,
        tried: str,
        timeout: aiohttp.ClientTimeout,
        body: Object | None = None,
        content_type: str = ALL,
        accept: str = ALL,
    ) -> aiohttp.ClientResponse:
        """Return a response with its body unread. Raise an error unless the status is 2xx."""
        request = await self._api.param_serialize(
            method,
            path,
            query_params=[(key, value) for key, value in query.items() if value],
            header_params={"Accept": accept, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        answer: Any = await self._api.call_api(*request, _request_timeout=timeout)
        response: aiohttp.ClientResponse = answer.response
        if response.status >= 300:
            async with response:
                raise translate(
                    response.status, read_status(await response.text(errors="replace")), tried
                )
        return response


def no_answer(tried: str, error: Exception) -> Unavailable:
    """Return the error for a failed connection, or for credentials that cannot be read."""
    if isinstance(error, TimeoutError):
        return Unavailable(f"{tried}: the API server did not answer in time")
    if isinstance(error, config.ConfigException):
        return Unavailable(f"{tried}: the credentials cannot be read: {error}")
    return Unavailable(f"{tried}: the API server is not to be reached: {error}")


def _read_object(answer: bytes, tried: str, *fields: str) -> Object:
    """Return the JSON object of an answer, which a proxy may have cut or replaced.

    Raises:
        Unavailable: The answer is not JSON, or is not an object with these fields.
    """
    try:
        read: Object = json.loads(answer)
    except ValueError as error:
        raise Unavailable(f"{tried}: the answer of the API server is not JSON: {error}") from error
    if not isinstance(read, dict) or not read.keys() >= set(fields):
        start = answer.decode(errors="replace").strip()[:200]
        raise Unavailable(f"{tried}: the answer does not come from an API server: {start}")
    return read


_RETRY_INTERVAL_S = 0.5

T = TypeVar("T")


async def retried(ask: Callable[[], Awaitable[T]], within_s: float) -> T:
    """Return the result of ``ask``, which is repeated while it raises ``Retriable``.

    The requested action may therefore be performed twice. Raise ``Retriable`` after ``within_s``,
    and any other error at once.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            return await ask()
        except Retriable:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(_RETRY_INTERVAL_S)


REQUESTS = Described(
    "headrace_api_requests_total",
    "counter",
    "Requests to the API server, by verb, kind and outcome: Success, or why not. A watch counts "
    "when it is opened.",
    ("verb", "kind", "outcome"),
)
REQUEST_S = Described(
    "headrace_api_request_duration_seconds",
    "histogram",
    "How long requests to the API server took; opening it, for a watch.",
    ("verb", "kind"),
)
METRICS: Sequence[Described] = (REQUESTS, REQUEST_S)


class RequestMetrics:
    """Counts and times the requests of a client (``Client.on_request``)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(REQUESTS.name, REQUESTS.help, REQUESTS.labels, registry=registry)
        self._took = Histogram(REQUEST_S.name, REQUEST_S.help, REQUEST_S.labels, registry=registry)

    def __call__(self, verb: str, kind: Kind, outcome: str, took_s: float) -> None:
        self._requests.labels(verb, kind.name, outcome).inc()
        self._took.labels(verb, kind.name).observe(took_s)


_PAGE = 500
"""Maximum number of objects in a page of a list, as in client-go."""
_IDLE_TIMEOUT_S = 75.0
"""Default time without data after which a watch ends, in seconds.

The API server sends a bookmark every minute, so after a longer silence the connection may be dead.
The exception is a kind that has had no events since the API server started. Its watches receive no
bookmarks, so they end although their connections are alive.
"""

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_MERGE_PATCH = "application/merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML


class Client(ApiRequests):
    """Client of the API server. Use it from one event loop."""

    def __init__(self, api: ApiClient, client_name: str, namespace: str = "default") -> None:
        super().__init__(api, client_name)
        self.namespace = namespace
        """Namespace to use if the user names none. It comes from the kubeconfig context."""
        self.idle_timeout_s = _IDLE_TIMEOUT_S
        """Time without data after which a watch ends, in seconds."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """Return the current object, or None if it does not exist."""
        try:
            return await self._send("get", "GET", kind, namespace, name)
        except NotFound:
            return None

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
    ) -> Objects:
        """Return all objects of a kind in their current state. They do not come from a cache."""
        found, _ = await self.list_versioned(
            kind, namespace, labels=labels, fields=fields, metadata_only=metadata_only
        )
        return found

    async def list_versioned(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
    ) -> tuple[Objects, str]:
        """Return objects as ``list`` does, and the resourceVersion at which a watch can start."""
        accept = _METADATA_ONLY if metadata_only else ALL
        items: Objects = []
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(_PAGE)}
        while True:
            page = await self._send("list", "GET", kind, namespace, query=query, accept=accept)
            # Items of a list lack kind and apiVersion. A list without items may contain null.
            type_meta = {"apiVersion": kind.api_version, "kind": kind.name}
            items += [type_meta | item for item in page["items"] or ()]
            if not (token := page["metadata"].get("continue")):
                return items, page["metadata"]["resourceVersion"]
            query["continue"] = token

    async def create(self, object: Object) -> Object:
        """Create an object. Raise ``Conflict`` if it exists, or while a quota is being counted."""
        kind, namespace, _ = _identity(object)
        return await self._send("create", "POST", kind, namespace, body=object)

    async def apply(
        self, object: Object, *, manager: str, force: bool = True, subresource: str = ""
    ) -> Object:
        """Apply an object with server-side apply.

        ``manager`` becomes the owner of the fields in ``object``. All other fields are kept.
        """
        kind, namespace, name = _identity(object)
        return await self._send(
            "patch",
            "PATCH",
            kind,
            namespace,
            name,
            subresource=subresource,
            body=object,
            query={"fieldManager": manager, "force": str(force).lower()},
            content_type=_APPLY_PATCH,
        )

    async def replace(self, object: Object, *, subresource: str = "") -> Object:
        """Replace an object. Raise ``Conflict`` if its resourceVersion is not the current one."""
        kind, namespace, name = _identity(object)
        return await self._send(
            "update", "PUT", kind, namespace, name, subresource=subresource, body=object
        )

    async def replace_status(self, object: Object) -> Object:
        """Replace the status only. Raise ``Conflict`` as ``replace`` does."""
        return await self.replace(object, subresource="status")

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, patch: Object, subresource: str = ""
    ) -> Object:
        """Apply a merge patch.

        Raise ``Conflict`` if the patch contains a ``metadata.resourceVersion`` that is not the
        current one.
        """
        return await self._send(
            "patch",
            "PATCH",
            kind,
            namespace,
            name,
            subresource=subresource,
            body=patch,
            content_type=_MERGE_PATCH,
        )

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        resource_version: str | None = None,
        propagation: str = "Background",
        grace_s: int | None = None,
    ) -> bool:
        """Delete an object, and return True if it existed.

        Raise ``Conflict`` if its version is not ``resource_version``.
        """
        options: Object = {"propagationPolicy": propagation}
        if resource_version is not None:
            options["preconditions"] = {"resourceVersion": resource_version}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        try:
            await self._send("delete", "DELETE", kind, namespace, name, body=options)
        except NotFound:
            return False
        return True

    async def watch(
        self,
        kind: Kind,
        namespace: str | None,
        resource_version: str,
        *,
        labels: str = "",
        fields: str = "",
        timeout_s: int = 300,
    ) -> AsyncGenerator[tuple[str, Object]]:
        """Yield the events after a version.

        The first event is ``CONNECTED``, when the watch is open. Each further event is ``ADDED``,
        ``MODIFIED``, ``DELETED`` or ``BOOKMARK``, with its object. The watch ends when the API
        server ends it (after ``timeout_s``), or after ``idle_timeout_s`` without data. Raise
        ``Expired`` if the version is too old, and ``Unavailable`` if the connection fails.
        """
        tried = sentence(self.client_name, "watch", kind, namespace)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": labels,
            "fieldSelector": fields,
            "timeoutSeconds": str(timeout_s),
        }
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=TIMEOUT_S, sock_read=self.idle_timeout_s
        )
        try:
            with self._trying("watch", kind, tried):
                response = await self._request(
                    "GET", kind.path(namespace), query, tried=tried, timeout=timeout
                )
            async with response:
                yield "CONNECTED", {}
                # The library's own watch fails for lines that are longer than its buffer.
                pending = b""
                try:
                    async for chunk in response.content.iter_any():
                        *lines, pending = (pending + chunk).split(b"\n")
                        for line in lines:
                            event = _read_object(line, tried, "type", "object")
                            if event["type"] == "ERROR":
                                status = event["object"]
                                raise translate(int(status.get("code") or 500), status, tried)
                            yield event["type"], event["object"]
                except aiohttp.SocketTimeoutError:
                    return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise no_answer(tried, error) from error


def _identity(object: Object) -> tuple[Kind, str | None, str]:
    metadata = object["metadata"]
    return kind_of(object), metadata.get("namespace"), metadata["name"]


_READ_TOKEN_EVERY_S = 60.0
"""Interval in seconds at which a pod reads its token again. The kubelet replaces the token minutes
before it expires."""


class PodCredentials:
    """Credentials of a pod's service account, which are read again at intervals.

    The library reads them again by this machine's clock, and therefore too late if the clock is set
    back. ``load`` reads the credentials into the settings.
    """

    def __init__(self, load: Callable[[Configuration], None], clock: Clock = time) -> None:
        self._load, self._clock = load, clock
        self._read_s = -math.inf

    def refresh(self, settings: Configuration) -> None:
        """Read the credentials again if that is due. The client calls this before each request.

        Raises:
            ConfigException: The files do not exist or are empty.
        """
        if self._clock.monotonic() - self._read_s >= _READ_TOKEN_EVERY_S:
            self._load(settings)
            self._read_s = self._clock.monotonic()
            settings.refresh_api_key_hook = self.refresh  # type: ignore[assignment]


def _load_pod_credentials(settings: Configuration) -> None:
    config.load_incluster_config(  # type: ignore[no-untyped-call]
        settings, try_refresh_token=False
    )


_POD = "KUBERNETES_SERVICE_HOST"
"""Environment variable that is set in every container of a Kubernetes cluster."""


async def connect(client_name: str) -> Client:
    """Connect the operator or a driver by ``KUBECONFIG``, or as a pod if it is not set.

    ``~/.kube/config`` is not used, so that a process that a user starts does not connect to an
    unexpected cluster. Error messages begin with ``client_name`` ("the operator"). Raise
    ``InvalidSpec`` if no configuration is usable.
    """
    if files := os.environ.get("KUBECONFIG"):
        return await connect_by_file(client_name, files)
    settings = Configuration()
    try:
        PodCredentials(_load_pod_credentials).refresh(settings)
    except config.ConfigException as error:
        raise InvalidSpec(
            f"{client_name} does not know which API server to ask: KUBECONFIG is not set, and this "
            f"is no pod with a service account ({error}). Set KUBECONFIG to a kubeconfig file"
        ) from error
    return Client(ApiClient(settings), client_name)


async def connect_as_kubectl(client_name: str, context: str | None = None) -> Client:
    """Connect a command with kubectl's configuration.

    The configuration is ``KUBECONFIG``, otherwise ``~/.kube/config``, otherwise the service account
    of the pod. The client's ``namespace`` is the context's. Raise ``InvalidSpec`` if no
    configuration is usable.
    """
    files = os.environ.get("KUBECONFIG")
    if not files:
        own = Path.home() / ".kube" / "config"
        if context is None and _POD in os.environ and not own.exists():
            return await connect(client_name)
        files = str(own)
    return await connect_by_file(client_name, files, context)


async def connect_by_file(client_name: str, files: str, context: str | None = None) -> Client:
    """Connect with kubeconfig files, separated by ``:`` as in ``KUBECONFIG``.

    Raises:
        InvalidSpec: No file exists, or a file cannot be used.
    """
    if not any(Path(file).expanduser().exists() for file in files.split(":") if file):
        raise InvalidSpec(
            f"there is no kubeconfig {files}, and no other way to find the Kubernetes cluster: set "
            "KUBECONFIG to a kubeconfig file"
        )
    settings = Configuration()
    try:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            files, context, settings, persist_config=False
        )
        known, current = config.list_kube_config_contexts(files)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError, YAMLError, ValueError, TypeError, KeyError) as error:
        raise InvalidSpec(f"kubeconfig {files} cannot be used: {error}") from error
    chosen = next((one for one in known if one["name"] == context), current)
    return Client(ApiClient(settings), client_name, chosen["context"].get("namespace") or "default")
