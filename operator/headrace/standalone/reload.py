"""Reload of manifests, and pauses that survive it."""

import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from headrace.api import (
    RESET_ANNOTATION,
    FlowState,
    Manifest,
    PausedPartitions,
    ReplicationFlow,
    SourceWatchSpec,
    read_at_start,
)
from headrace.control.flow_actions import as_json
from headrace.errors import HeadraceError, InvalidSpec, Retriable
from headrace.logs import get_logger, lost_lines
from headrace.standalone.herder import StandaloneHerder
from headrace.standalone.manifests import ManifestFiles

# Changes by ``headrace flow pause`` are kept in files, so that they also apply to the next run. As
# with kubectl, a field that was changed by a command keeps its value until the manifest changes it.

log = get_logger(__name__)

_Fields = dict[str, Any]


class PauseRecords:
    """Records of pauses: a file for each flow that differs from its manifest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def applied(self, declared: ReplicationFlow) -> ReplicationFlow:
        """Return the manifest's flow with the changes that were recorded for that manifest."""
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
            log.warning(
                "the state of `headrace flow pause` or `resume` replaces the manifest's",
                flow=declared.metadata.name,
                fields=", ".join(sorted(fields)),
            )
        return declared.model_copy(update={"spec": declared.spec.model_copy(update=fields)})

    def record(self, declared: ReplicationFlow, running: ReplicationFlow) -> None:
        """Record how ``running`` differs from ``declared``. Raise ``Retriable`` if that fails."""
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
    "source_watch": SourceWatchSpec.model_validate,
}


def _fields(flow: ReplicationFlow) -> _Fields:
    return {
        "state": str(flow.spec.state),
        "paused_partitions": [as_json(item) for item in flow.spec.paused_partitions],
        "source_watch": as_json(flow.spec.source_watch),
    }


class Reload:
    """Reloads the manifests. If one of them has a mistake, no flow is changed."""

    def __init__(
        self,
        herder: StandaloneHerder,
        files: ManifestFiles,
        declared: Mapping[str, ReplicationFlow],
        pauses: PauseRecords,
        *,
        drivers: int | None,
        write_secrets: Callable[[Manifest], None],
        serve: Callable[[str], Awaitable[None]],
    ) -> None:
        """Create a reload for a run.

        Args:
            herder: Herder of the run.
            files: Manifest files.
            declared: Flows of the manifest by name.
            pauses: Records of pauses.
            drivers: Number of drivers from the command line, which takes precedence over manifests.
            write_secrets: Writes the Secrets of a manifest.
            serve: Opens the control socket of a new flow.
        """
        self.happened = False
        """True if the manifests were reloaded successfully at least once."""
        self._herder, self._files, self._pauses = herder, files, pauses
        self._declared = dict(declared)
        self._drivers, self._wanted = drivers, driver_count(declared.values())
        self._write_secrets, self._serve = write_secrets, serve
        self._problem = ""
        herder.before_pause, herder.notices = self._record, self.notices

    def notices(self) -> list[str]:
        """Return notices about an invalid edit, and about changed files that were not reloaded."""
        notices = [one for one in (self._problem, lost_lines()) if one]
        if changed := self._files.changed():
            files = ", ".join(map(str, changed))
            notices.append(
                f"{files} changed and was not read again: `kill -HUP {os.getpid()}` does that"
            )
        return notices

    async def run_once(self) -> None:
        """Read the manifests and apply them."""
        try:
            manifest = self._files.read()
            new = {flow.metadata.name: flow for flow in manifest.flows}
            self._refuse(new)
            self._write_secrets(manifest)
        except (HeadraceError, OSError) as error:
            at = datetime.now().astimezone().strftime("%H:%M:%S")
            self._problem = f"manifests read at {at}, not applied, flows unchanged: {error}"
            log.error("manifests not applied, flows unchanged", why=str(error))
            return
        self._problem = ""
        self.happened = True
        applied = [name for name, flow in new.items() if await self._apply(name, flow)]
        for name in self._declared.keys() - new.keys():
            self._herder.change_spec(name, state=FlowState.STOPPED)
            applied.append(f"{name} (stopped: no file has it any more)")
        self._declared = new
        for name, flow in new.items():
            self._keep_pauses(flow, self._herder.flow(name))
        self._scale()
        log.info("manifests read", changed=", ".join(applied) or "nothing")

    def _refuse(self, new: Mapping[str, ReplicationFlow]) -> None:
        for name, flow in new.items():
            if (known := self._herder.find_flow(name)) is None:
                continue
            for side in ("source", "target"):
                was, now = getattr(known.spec, side).alias, getattr(flow.spec, side).alias
                if was != now:
                    raise InvalidSpec(
                        f"flow {name}: spec.{side}.alias: {was} -> {now}: it is immutable, as "
                        "topic names and progress contain it; create another flow instead"
                    )
            was, now = known.spec.offsets.mode, flow.spec.offsets.mode
            if was != now:
                raise InvalidSpec(
                    f"flow {name}: spec.offsets.mode: {was} -> {now}: it "
                    "is immutable, as the target topics have offsets of one mode; create another "
                    "flow with other target topics instead"
                )

    async def _apply(self, name: str, flow: ReplicationFlow) -> bool:
        known = self._herder.find_flow(name)
        if known is None:
            await self._serve(name)
            self._herder.add(self._pauses.applied(flow))
            return True
        before = self._declared.get(name, known)  # a flow that was removed earlier is stopped
        changed = {
            field: value
            for field in type(flow.spec).model_fields
            if (value := getattr(flow.spec, field)) != getattr(before.spec, field)
        }
        if changed:
            self._herder.change_spec(name, **changed)
        reset = flow.metadata.annotations.get(RESET_ANNOTATION, "")
        reset_changed = reset != before.metadata.annotations.get(RESET_ANNOTATION, "")
        if reset_changed:
            self._herder.annotate(name, RESET_ANNOTATION, reset)
        if read_at_start(before.spec) != read_at_start(flow.spec):
            self._herder.roll_drivers()
        return bool(changed) or reset_changed

    def _scale(self) -> None:
        wanted = driver_count(self._declared.values())
        if self._drivers is None and wanted != self._wanted:
            self._herder.scale(wanted)
        self._wanted = wanted

    def _keep_pauses(self, declared: ReplicationFlow, running: ReplicationFlow) -> None:
        try:
            self._pauses.record(declared, running)
        except HeadraceError as error:
            log.warning("pauses not recorded", why=str(error))

    def _record(self, flow: ReplicationFlow) -> None:
        declared = self._declared.get(flow.metadata.name)
        if declared is not None:
            self._pauses.record(declared, flow)


def driver_count(flows: Iterable[ReplicationFlow]) -> int:
    """Return the number of drivers that the flows share: the maximum that a flow specifies."""
    return max([1, *(flow.spec.drivers.replicas for flow in flows)])
