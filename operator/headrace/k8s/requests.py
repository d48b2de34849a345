"""Requests to the API server: each ends in time, raises errors of ours, and reports its outcome."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient

from headrace.errors import HeadraceError
from headrace.k8s.errors import Unavailable, read_status, sentence, translate
from headrace.k8s.kinds import EVENT, LEASE, Kind, Object

TIMEOUT_S = 5.0
"""Of a request: an API server that is well answers in milliseconds. Below a Lease's 6 s."""
ADMISSION_TIMEOUT_S = 35.0
"""Of a write that admission webhooks see: each of them may take 10 s by default, and 30 s at most.
Who gives up before the API server does gets nothing written, though the webhook may be ignored."""
ALL = "application/json"
"""The media type of whole objects."""

RequestListener = Callable[[str, Kind, str, float], None]
"""Called for a request: its verb, the kind, its outcome (``Success``, the name of an error class of
``k8s.errors``, or ``Cancelled``), and how many seconds it took."""


class Requests:
    """The lower half of a ``Client``; errors are those of ``k8s.errors``, and ``who`` begins their
    sentences."""

    def __init__(self, api: ApiClient, who: str) -> None:
        self._api = api
        self.who = who
        self.write_timeout_s = TIMEOUT_S
        """Of writes, other than those of Leases and Events: these wait as long as reads."""
        self.on_request: RequestListener = lambda verb, kind, outcome, took_s: None
        """Called for every request; for a watch, when it is open."""
        api.user_agent = who.removeprefix("the ").replace(" ", "-")

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
        tried = sentence(self.who, verb, kind, namespace, name)
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
                answer: Object = json.loads(await response.read())
                return answer

    @contextmanager
    def _trying(self, verb: str, kind: Kind, tried: str) -> Iterator[None]:
        """Whatever breaks a request is raised as an error of ours and reported as its outcome."""
        began, outcome = time.monotonic(), "Cancelled"
        try:
            yield
            outcome = "Success"
        except HeadraceError as error:
            outcome = type(error).__name__
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
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
        """An answer with its body unread; every other answer than 2xx is raised."""
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
                raise translate(response.status, read_status(await response.text()), tried)
        return response


def no_answer(tried: str, error: Exception) -> Unavailable:
    """Our error for one of the connection."""
    if isinstance(error, TimeoutError):
        return Unavailable(f"{tried}: the API server did not answer in time")
    return Unavailable(f"{tried}: the API server is not to be reached: {error}")
