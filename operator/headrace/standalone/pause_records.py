"""What ``headrace flow pause`` changed, kept in files: it counts in the next run, too.

By kubectl's rule for a field that was changed by hand: it stays until the manifest changes it.
"""

import json
import os
from pathlib import Path
from typing import Any

from headrace.api import FlowState, PausedPartitions, ReplicationFlow
from headrace.control.flow_actions import as_json
from headrace.errors import Retriable
from headrace.logs import get_logger

log = get_logger(__name__)

_Fields = dict[str, Any]


class PauseRecords:
    """A file for each flow that is not as its manifest has it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def applied(self, declared: ReplicationFlow) -> ReplicationFlow:
        """The flow as it is to run: the manifest's, with what was changed since that version."""
        try:
            record = json.loads(self._file(declared).read_text())
            was, now = record["manifest"], record["now"]
            fields = {
                name: _PARSE[name](now[name])
                for name, value in _fields(declared).items()
                if value == was[name] != now[name]
            }
        except FileNotFoundError:
            return declared
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.error("record of pauses ignored", file=str(self._file(declared)), why=str(error))
            return declared
        if fields:
            log.warning("as `headrace flow pause` or `resume` left it", flow=declared.metadata.name)
        return declared.model_copy(update={"spec": declared.spec.model_copy(update=fields)})

    def record(self, declared: ReplicationFlow, running: ReplicationFlow) -> None:
        """Keep how ``running`` differs; raises ``Retriable`` when it cannot be written."""
        file, was, now = self._file(declared), _fields(declared), _fields(running)
        try:
            if was == now:
                file.unlink(missing_ok=True)
                return
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = file.with_suffix(".new")
            with draft.open("w") as out:
                json.dump({"manifest": was, "now": now}, out)
                out.flush()
                os.fsync(out.fileno())
            draft.replace(file)
        except OSError as error:
            raise Retriable(
                f"{declared.metadata.name} is unchanged: it cannot be recorded in {file}, for the "
                f"next run: {error.strerror}"
            ) from error

    def _file(self, flow: ReplicationFlow) -> Path:
        return self._folder / f"{flow.metadata.name}.paused.json"


_PARSE: dict[str, Any] = {
    "state": FlowState,
    "paused_partitions": lambda items: tuple(map(PausedPartitions.model_validate, items)),
}


def _fields(flow: ReplicationFlow) -> _Fields:
    return {
        "state": str(flow.spec.state),
        "paused_partitions": [as_json(item) for item in flow.spec.paused_partitions],
    }
