"""When a run ends by itself: it caught up, as it was asked to, or a manifest has a mistake."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from headrace.control.flow_actions import caught_up, progress_of, why_behind
from headrace.errors import Fatal, GaveUp, InvalidSpec
from headrace.standalone import StandaloneHerder
from headrace.standalone.reload import Reload


async def watch(herder: StandaloneHerder, reload: Reload, give_up_after_s: float | None) -> None:
    """Return when all is caught up, if that was asked for; raise what cannot go on."""
    last, since = None, time.monotonic()
    while True:
        await asyncio.sleep(0.2)
        units = {flow: herder.tasks(flow) for flow in herder.flows()}
        for tasks in units.values():
            if not reload.happened:  # a bad edit ends nothing: its tasks fail, and say why
                _raise_mistakes(tasks, give_up_after_s is not None)
        if give_up_after_s is None:
            continue
        if all(caught_up(tasks) for tasks in units.values()):
            return
        now = [progress_of(tasks) for tasks in units.values()]
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > give_up_after_s:
            behind = [flow for flow in units if not caught_up(units[flow])]
            why = "; ".join(f"{flow}: {why_behind(units[flow])}" for flow in behind)
            raise GaveUp(f"not caught up, and nothing moved for {give_up_after_s:.0f} s: {why}")


def _raise_mistakes(tasks: Sequence[Any], once: bool) -> None:
    """A mistake in the manifest that only Kafka detects ends the run: no retry corrects it."""
    for task in tasks:
        error = task.status.last_error
        if task.status.phase != "Failed" or error is None:
            continue
        if error.reason in ("InvalidSpec", "TargetTaken", "LoopFound"):
            raise InvalidSpec(error.message)
        if once and task.status.restarts:
            raise Fatal(f"{task.metadata.name} failed: {error.message}")
