"""Fixtures for commands about a running flow without drivers, with brokers in memory."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from support.source_tasks import FLOW, P0, P1, Scene

from headrace.api import TaskType, TopicPartitions
from headrace.cli.flow import flow_access
from headrace.cli.flow.flow_verbs import LocalFlows
from headrace.cli.main import main
from headrace.control import control
from headrace.standalone import StandaloneHerder
from headrace.standalone.control_handlers import answer
from headrace.standalone.task_store import TaskStore


@pytest.fixture
def herder(monkeypatch: pytest.MonkeyPatch) -> StandaloneHerder:
    """Return the herder of a run whose flow has one task."""
    store = TaskStore()

    async def make() -> StandaloneHerder:
        return StandaloneHerder([FLOW], 0, store=store)

    herder = asyncio.run(make())
    store.put("f", TaskType.SOURCE_TASK, 0, TopicPartitions.pack([P0, P1]))

    def request(flow: str, verb: str, **arguments: Any) -> dict[str, Any]:
        return asyncio.run(answer(herder, flow, verb, arguments))

    monkeypatch.setattr(control, "request", request)
    monkeypatch.setattr(LocalFlows, "names", lambda self: ["f"])
    return herder


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Yield the clusters of the flow, as a command opens them."""
    structlog.reset_defaults()  # an earlier command logs to a stream that is closed by now
    scene = Scene()
    monkeypatch.setattr(flow_access, "FlowContext", lambda *_, **__: scene.context)
    yield scene
    scene.close()


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a command, checks its exit code and returns its output."""

    def run(*command: str, code: int = 0) -> str:
        capsys.readouterr()  # earlier logs
        assert main([*command]) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    return run
