"""Time-outs of the operator's requests before it leads."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.controller import operator

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
