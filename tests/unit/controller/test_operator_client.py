"""Requests of the operator before it leads."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace.controller import access, operator
from headrace.errors import HeadraceError
from headrace.k8s import POD, Forbidden, Kind, Unavailable

WEBHOOKS_TAKE_S = 30.0
"""Maximum time of a webhook (``timeoutSeconds`` of its configuration)."""


class Elected(Exception):
    """Error that ends the start once the client is ready."""


def test_its_writes_wait_longer_than_webhooks_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    client = SimpleNamespace(write_timeout_s=0.0)

    async def connect(_: str) -> Any:
        return client

    def elect(*_: Any) -> None:
        raise Elected

    monkeypatch.setattr(operator, "connect", connect)
    monkeypatch.setattr(operator, "LeaderElection", elect)
    options: Any = SimpleNamespace(lease_namespace="", lease="", identity="")
    with pytest.raises(Elected):
        asyncio.run(operator.run_operator(options))
    assert client.write_timeout_s > WEBHOOKS_TAKE_S


class BusyApiServer:
    """API server that rejects the first ``times`` lists of ``kind`` with ``error``."""

    def __init__(self, kind: Kind, error: HeadraceError, times: int = 1) -> None:
        self._kind, self._error = kind, error
        self._times = times

    async def list(self, kind: Kind, *_: Any, **__: Any) -> list[Any]:
        if kind is self._kind and self._times:
            self._times -= 1
            raise self._error
        return []

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[None]:
        yield None


def test_an_overloaded_api_server_is_a_warning_whose_end_is_logged() -> None:
    client: Any = BusyApiServer(POD, Unavailable("the API server answers 429"))
    with capture_logs() as lines:
        asyncio.run(access.wait_for_flows(client, (None,), with_tests=False, retry_s=0))
    assert [(line["log_level"], line["event"]) for line in lines] == [
        ("warning", "cannot list all kinds of objects; it tries again"),
        ("info", "lists all kinds of objects"),
    ]


def test_a_missing_permission_of_another_kind_is_an_error_and_does_not_stop_the_start() -> None:
    client: Any = BusyApiServer(POD, Forbidden("may not list pods"))
    with capture_logs() as lines:
        asyncio.run(access.wait_for_flows(client, (None,), with_tests=False, retry_s=0))
    assert [line["log_level"] for line in lines] == ["error"]


def test_flows_are_reconciled_although_another_kind_stays_unavailable() -> None:
    client: Any = BusyApiServer(POD, Unavailable("the API server answers 500"), times=1000)
    asyncio.run(access.wait_for_flows(client, (None,), with_tests=False, retry_s=0))
