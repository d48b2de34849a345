"""Pod on the stand-in node, from the creation of its folders to its end."""

import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from cluster import volumes
from cluster.container import Container, now
from cluster.pod_spec import (
    Root,
    Unsupported,
    command_line,
    environment,
    probed_here,
    refuse_unknown,
)
from cluster.rest import Json

POLL_INTERVAL_S = 0.1
FORCED_GRACE_S = 1.0
"""Grace period of a pod whose object was deleted by force (``kubectl delete --force``)."""


class RunningPod:
    """Pod whose containers run as processes of this machine.

    Its own thread handles all its events, so that it continues without an API server. ``status``
    contains what to report to the API server. ``ended`` is True once all containers have ended.
    """

    def __init__(
        self,
        pod: Json,
        ip: str,
        folder: Path,
        *,
        variables: Mapping[str, str],
        elsewhere: Mapping[str, str],
        sources: Callable[[], volumes.Sources],
        changed: Callable[[], None],
    ) -> None:
        """Start a pod.

        The spec's variables override ``variables``. ``elsewhere`` has the meaning of
        ``Root.elsewhere``. ``sources`` returns the current sources of volumes, and ``changed`` is
        called after a change of ``status`` or ``ended``.
        """
        self.name: str = pod["metadata"]["name"]
        self.ip = ip
        self.folder = folder
        self.status: Json = {}
        self.ended = False
        self._pod = pod
        self._variables = variables
        self._sources = sources
        self._changed = changed
        self._started_at = now()
        self._grace_s: float | None = None
        self._mounts = {
            mount["mountPath"]: mount["name"]
            for container in pod["spec"]["containers"]
            for mount in container.get("volumeMounts", [])
        }
        self._root = Root(
            folder / "root", [PurePosixPath(path) for path in self._mounts], elsewhere
        )
        self._written: dict[str, dict[str, bytes]] = {}
        self.containers = {
            spec["name"]: Container(
                probed_here(spec, self._root), folder / f"{spec['name']}.log", ip
            )
            for spec in pod["spec"]["containers"]
        }
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pod-{self.name}", daemon=True)
        self.update(pod)  # it may be terminating already
        self._thread.start()

    # Methods for tests.

    def container(self, name: str | None = None) -> Container:
        """Return a container, by default the first."""
        return self.containers[name] if name else next(iter(self.containers.values()))

    @property
    def pid(self) -> int:
        """Pid of the first container's process."""
        process = self.container().process
        assert process, f"{self.name} does not run: {self.status}"
        return process.pid

    @property
    def log(self) -> str:
        """Return the output of all starts of the first container."""
        file = self.container().log
        return file.read_text(errors="replace") if file.exists() else ""

    def mounted(self, path: str) -> Path:
        """Return the local path of a path below the pod's mounts."""
        return Path(self._root.moved(path))

    def kill(self) -> None:
        """Kill the first container's process with SIGKILL. A kubelet starts it again."""
        os.kill(self.pid, signal.SIGKILL)

    def freeze(self) -> None:
        """Freeze the first container's process (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume the first container's process (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    @property
    def finished(self) -> bool:
        """Whether all containers have ended and none is started again."""
        return self._runs_once and all(
            container.has_ended and not container.running for container in self.containers.values()
        )

    @property
    def _runs_once(self) -> bool:
        return bool(self._pod["spec"]["restartPolicy"] == "Never")

    # Methods for its kubelet.

    def update(self, pod: Json) -> None:
        """Adopt the changed object."""
        self._pod = pod
        if "deletionTimestamp" in pod["metadata"]:
            self.end(pod["metadata"]["deletionGracePeriodSeconds"])

    def end(self, grace_s: float = FORCED_GRACE_S) -> None:
        """End its containers within this time."""
        self._grace_s = grace_s if self._grace_s is None else min(self._grace_s, grace_s)
        self._wake.set()

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join()

    # Life cycle, in its own thread.

    def _run(self) -> None:
        while not self.ended:
            self._wake.wait(POLL_INTERVAL_S)
            self._wake.clear()
            grace_s = self._grace_s
            try:
                if grace_s is None and not self.finished:
                    refuse_unknown(self._pod)
                    self._mount()
                    self._start()
            except (volumes.NotThereYet, Unsupported) as why:
                reason = "ContainerCreating"
                if isinstance(why, Unsupported):
                    reason = "CreateContainerConfigError"
                for container in self.containers.values():
                    container.waiting = {"reason": reason, "message": str(why)}
            for container in self.containers.values():
                if grace_s is not None:
                    container.terminate(grace_s)
                own_grace_s = self._pod["spec"]["terminationGracePeriodSeconds"]
                container.poll(own_grace_s, terminating=grace_s is not None)
            over = grace_s is not None and not any(c.running for c in self.containers.values())
            status = self._compute_status(over)
            if status != self.status or over:
                self.status = status
                self.ended = over
                self._changed()

    def _mount(self) -> None:
        """Write volumes that are new or changed."""
        by_name = {volume["name"]: volume for volume in self._pod["spec"].get("volumes", [])}
        for path, volume in self._mounts.items():
            files = volumes.content(by_name[volume], self._sources())
            if self._written.get(path) != files:
                volumes.write(Path(f"{self._root.folder}{path}"), files)
                self._written[path] = files

    def _start(self) -> None:
        """Start the containers that do not run."""
        pod = {**self._pod, "status": {"podIP": self.ip, "hostIP": "127.0.0.1"}}
        for container in self.containers.values():
            if container.running or not container.may_start:
                continue
            if container.has_ended and self._runs_once:
                continue
            variables = environment(pod, container.spec, self._root)
            command = command_line(container.spec, variables, self._root)
            everything = {**os.environ, **self._variables, **variables}
            container.start(command, everything, self.folder)

    def _compute_status(self, over: bool) -> Json:
        over = over or self.finished
        statuses = [container.status(over=over) for container in self.containers.values()]
        ready = all(status["ready"] for status in statuses)
        phase = "Running" if any(status["containerID"] for status in statuses) else "Pending"
        if over:
            failed = any(container.failed for container in self.containers.values())
            phase = "Failed" if failed else "Succeeded"
        states = {
            "PodReadyToStartContainers": True,
            "Initialized": True,
            "ContainersReady": ready,
            "Ready": ready,
        }
        before = {c["type"]: c for c in self.status.get("conditions", [])}
        others = [c for c in self._pod["status"].get("conditions", []) if c["type"] not in states]
        return {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "podIP": self.ip,
            "podIPs": [{"ip": self.ip}],
            "startTime": self._started_at,
            "conditions": [*others, *(_condition(t, s, before.get(t)) for t, s in states.items())],
            "containerStatuses": statuses,
        }


def _condition(type: str, is_so: bool, before: Json | None) -> Json:
    status = "True" if is_so else "False"
    if before and before["status"] == status:
        return before
    return {"type": type, "status": status, "lastTransitionTime": now()}
