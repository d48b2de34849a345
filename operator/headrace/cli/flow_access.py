"""The clusters of a flow, for a command that only reads them."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from headrace import logs
from headrace.api import ReplicationFlow
from headrace.connect import DriverIdentity
from headrace.connect.context import FlowContext


@contextmanager
def open_context(flow: ReplicationFlow, secrets: Path | None) -> Iterator[FlowContext]:
    """With clients of its own, beside those of the flow's drivers. ``secrets``: see
    ``FlowContext``."""
    logs.configure("WARNING")
    context = FlowContext(flow, DriverIdentity("command", uuid.uuid4().hex[:12]), secrets)
    try:
        yield context
    finally:
        context.close()


def open_answered(
    answer: Mapping[str, Any], secrets: Path | None
) -> AbstractContextManager[FlowContext]:
    """Of a verb's answer that has the ``flow``, and its ``secrets`` where it runs on this machine;
    a folder that the user named wins."""
    local = answer.get("secrets")
    folder = secrets or (Path(local) if local else None)
    return open_context(ReplicationFlow.model_validate(answer["flow"]), folder)
