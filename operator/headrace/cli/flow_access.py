"""The clusters of a flow, for a command that only reads them."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
