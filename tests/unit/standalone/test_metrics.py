"""Metrics of a run at a scrape. Its drivers are answers from a table."""

import asyncio
import os

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headrace.api import ReplicationFlow, ReplicationTaskStatus, TaskType
from headrace.standalone import StandaloneHerder
from headrace.standalone.fleet import Samples
from headrace.standalone.metrics import not_ready, run_registry
from headrace.standalone.task_store import TaskStore

FLOW = ReplicationFlow.model_validate(
    {
        "metadata": {"name": "f", "namespace": "shop"},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": "127.0.0.1:1"},
            "target": {"alias": "west", "bootstrapServers": "127.0.0.1:2"},
            "topics": {"include": ["orders"]},
        },
    }
)
LABELS = ["shop", "f", "f-source-task-0", "SourceTask"]


class Driver:
    """Driver that measures the same task as the other one."""

    pid = os.getpid()

    def __init__(self, name: str, lag: int) -> None:
        self.name, self._lag = name, lag

    async def samples(self, timeout_s: float) -> Samples:
        assert timeout_s < 5
        return [("headrace_task_lag_records", LABELS, self._lag)]


def test_a_task_that_moves_is_measured_by_its_owner_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scrape() -> str:
        store = TaskStore()
        herder = StandaloneHerder([FLOW], 0, store=store)
        drivers = [Driver("driver-1", 70), Driver("driver-2", 80)]
        monkeypatch.setattr(herder, "alive", lambda: drivers)
        store.put("f", TaskType.SOURCE_TASK, 0)
        (task,) = (one for one in herder.tasks("f") if one.spec.type is TaskType.SOURCE_TASK)
        owned = ReplicationTaskStatus(driver_name="driver-2", driver_incarnation="x", epoch=1)
        store.write_status(task, owned)
        (sentence,) = not_ready(herder)
        assert sentence.startswith("f: ")
        registry = run_registry(herder, asyncio.get_running_loop())
        return (await asyncio.to_thread(generate_latest, registry)).decode()

    found = {
        (sample.name, sample.labels.get("pod")): sample.value
        for family in text_string_to_metric_families(asyncio.run(scrape()))
        for sample in family.samples
    }
    lag = {pod: value for (name, pod), value in found.items() if name.endswith("_lag_records")}
    assert lag == {"driver-2": 80}, "the task has reported no lag to the flow"
    resident = "process_resident_memory_bytes"
    assert {pod for name, pod in found if name == resident} == {"run", "driver-1", "driver-2"}
