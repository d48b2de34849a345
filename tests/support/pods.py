"""Driver processes as pods have them, and a scheduler of the test's own."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3
from cluster.api_server import ApiServer
from support.patience import WITHIN_S

from headrace.assign import TaskId

Json = dict[str, Any]
GROUP = "headrace.dev"
PORT = 8080

# A driver's permissions, and nothing else.
RULES = [
    {"apiGroups": [GROUP], "resources": ["replicationflows"], "verbs": ["list", "watch"]},
    {
        "apiGroups": [GROUP],
        "resources": ["replicationtasks"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
    {"apiGroups": [GROUP], "resources": ["replicationtasks/status"], "verbs": ["update"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["create", "patch", "delete"],
    },
]


class Driver:
    """A driver process; ``start`` it again to restart its container."""

    def __init__(self, kubeconfig: Path, flow: str, namespace: str, name: str, ip: str) -> None:
        self.name, self.ip = name, ip
        self.log = kubeconfig.parent / f"{namespace}-{name}.log"
        self._env = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "HEADRACE_LOG_LEVEL": "DEBUG",
        }
        self._command = [sys.executable, "-m", "headrace", "driver"]
        self._command += [f"--flow={flow}", f"--namespace={namespace}", f"--name={name}"]
        self._command += [f"--pod-ip={ip}", f"--port={PORT}"]
        self.start()

    def start(self) -> None:
        """Start the process again as a new incarnation."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env
            )

    def end(self, number: signal.Signals = signal.SIGTERM, within_s: float = WITHIN_S) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(within_s)

    def probe(self, path: str) -> tuple[int, str]:
        """Return status and text of ``/healthz`` or ``/readyz``; 0 while nothing answers."""
        try:
            url = f"http://{self.ip}:{PORT}{path}"
            answer = urllib3.request("GET", url, timeout=2, retries=False)
        except urllib3.exceptions.HTTPError as error:
            return 0, str(error)
        return answer.status, answer.data.decode()

    @property
    def ready(self) -> bool:
        """Whether its readiness probe succeeds."""
        return self.probe("/readyz")[0] == 200


class Scene:
    """A ReplicationFlow on the API server, its units, and the drivers that a test starts."""

    def __init__(self, server: ApiServer, namespace: str, flow: Mapping[str, Any]) -> None:
        self.server, self.namespace = server, namespace
        self.name: str = flow["metadata"]["name"]
        self.drivers: dict[str, Driver] = {}
        self._path = f"/apis/{GROUP}/v1beta1/namespaces/{namespace}/replicationtasks"
        rbac = "rbac.authorization.k8s.io"
        named = {"apiVersion": f"{rbac}/v1", "metadata": {"name": "driver"}}
        account = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
        server.apply(
            named | {"kind": "Role", "rules": RULES},
            named
            | {
                "kind": "RoleBinding",
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "driver"},
                "subjects": [account],
            },
            dict(flow),
            namespace=namespace,
        )
        flows = f"/apis/{GROUP}/v1beta1/namespaces/{namespace}/replicationflows"
        self._uid = server.rest.get(f"{flows}/{self.name}")["metadata"]["uid"]
        self.kubeconfig = server.kubeconfig_of(namespace, "default")
        for type in ("SourceConnector", "HeartbeatConnector"):
            server.apply(self._connector(type), namespace=namespace)

    def _connector(self, type: str) -> Json:
        metadata = {
            "name": TaskId(self.name, type, 0).name,
            "labels": {"headrace.dev/flow": self.name, "headrace.dev/type": type},
            "ownerReferences": [
                {
                    "apiVersion": f"{GROUP}/v1beta1",
                    "kind": "ReplicationFlow",
                    "name": self.name,
                    "uid": self._uid,
                }
            ],
        }
        return {
            "apiVersion": f"{GROUP}/v1beta1",
            "kind": "ReplicationTask",
            "metadata": metadata,
            "spec": {"flowName": self.name, "type": type, "index": 0},
        }

    def start_driver(self, name: str, kubeconfig: Path | None = None) -> Driver:
        """Start a driver process with an address of its own."""
        ip = f"127.{os.getpid() % 250 + 1}.{time.monotonic_ns() % 250 + 1}.{len(self.drivers) + 2}"
        driver = Driver(kubeconfig or self.kubeconfig, self.name, self.namespace, name, ip)
        self.drivers[name] = driver
        return driver

    def units(self, type: str = "") -> list[Json]:
        """Return all units of the flow, or all units of one type."""
        found = self.server.rest.get(self._path)["items"]
        mine = [unit for unit in found if unit["spec"]["flowName"] == self.name]
        return [unit for unit in mine if type in ("", unit["spec"]["type"])]

    def unit(self, name: str) -> Json:
        """Return one unit."""
        return self.server.rest.get(f"{self._path}/{name}")

    def spread(self, *drivers: str) -> None:
        """Assign unassigned units, each to the driver with the fewest."""
        units = sorted(self.units(), key=lambda unit: unit["metadata"]["name"])
        load = Counter(unit["spec"].get("driverName") for unit in units)
        for unit in units:
            if not unit["spec"].get("driverName"):
                driver = min(drivers, key=load.__getitem__)
                self.assign(unit["metadata"]["name"], driver)
                load[driver] += 1

    def assign(self, name: str, driver: str, lost: str = "") -> None:
        """Assign a unit to a driver, as the operator does."""
        self.patch(name, {"spec": {"driverName": driver, "lostIncarnation": lost}})

    def patch(self, name: str, patch: Json) -> None:
        """Merge patch."""
        self.server.rest.merge(f"{self._path}/{name}", patch)

    def delete(self, name: str) -> None:
        """Delete a unit."""
        self.server.rest.delete(f"{self._path}/{name}")

    def running(self) -> dict[str, str]:
        """Return the driver of each source task that runs on its assigned driver."""
        return {
            unit["metadata"]["name"]: unit["spec"]["driverName"]
            for unit in self.units("SourceTask")
            if (status := unit.get("status", {})).get("phase") == "Running"
            and status.get("driverName") == unit["spec"].get("driverName")
        }

    def epochs(self) -> dict[str, int]:
        """Return the epochs of the source tasks."""
        return {
            unit["metadata"]["name"]: unit.get("status", {}).get("epoch", 0)
            for unit in self.units("SourceTask")
        }

    def log(self) -> str:
        """Return the logs of all drivers."""
        return "".join(driver.log.read_text() for driver in self.drivers.values())


@contextmanager
def scene(server: ApiServer, namespace: str, flow: Mapping[str, Any]) -> Iterator[Scene]:
    """Yield a scene, and end its drivers with the ``with`` block."""
    made = Scene(server, namespace, flow)
    try:
        yield made
    except BaseException:
        print(made.log()[-20_000:])
        raise
    finally:
        for driver in made.drivers.values():
            driver.process.kill()
            driver.process.wait()
