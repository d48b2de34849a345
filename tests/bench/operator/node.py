"""A scheduler and a kubelet whose pods are simulated drivers."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.operator.drivers import SimulatedDriver, until_done
from cluster.api_server import ApiServer
from cluster.rest import ApiError

from headrace.api.labels import COMPONENT_LABEL, DRIVER_COMPONENT, FLOW_LABEL
from headrace.errors import Retriable
from headrace.k8s import ChangeType, Client, NotFound, Object, Reflector, WatchEvent
from headrace.k8s.kinds import POD

NODE = "node-1"
THREADS = 64


class Node:
    """A node that runs a namespace's driver pods, which the operator's Deployments create."""

    def __init__(
        self, api_server: ApiServer, client: Client, namespace: str, tasks: asyncio.TaskGroup
    ) -> None:
        self._api, self._client, self._namespace, self._tasks = api_server, client, namespace, tasks
        self._threads = ThreadPoolExecutor(THREADS)
        self._kubeconfigs: dict[str, asyncio.Task[Path]] = {}
        self._ending: set[str] = set()
        self.drivers: dict[str, SimulatedDriver] = {}
        """Running drivers, by pod."""
        self.admits = asyncio.Event()
        """Clear it, and new pods stay pending."""
        self.admits.set()
        labels = f"{COMPONENT_LABEL}={DRIVER_COMPONENT},{FLOW_LABEL}"
        self.pods = Reflector(client, POD, namespace, labels=labels, on_change=self._changed)
        self._begun = {tasks.create_task(self.pods.run())}

    async def restart(self, name: str) -> None:
        """Restart a driver that vanished, as a kubelet restarts a container."""
        pod = self.pods.get(name)
        assert pod
        self._run(pod, await self._kubeconfig(pod))

    def close(self) -> None:
        """End all of it at once."""
        for driver in self.drivers.values():
            driver.vanish()
        for task in self._begun:
            task.cancel()

    def _changed(self, change: WatchEvent) -> None:
        name = change.object["metadata"]["name"]
        if change.type is ChangeType.DELETED:
            self._ending.discard(name)
            if driver := self.drivers.pop(name, None):
                driver.vanish()
        elif change.type is ChangeType.ADDED:
            self._begin(self._start(change.object))
        elif "deletionTimestamp" in change.object["metadata"] and name not in self._ending:
            self._ending.add(name)
            self._begin(self._end(name))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        begun = self._tasks.create_task(work)
        self._begun.add(begun)
        begun.add_done_callback(self._begun.discard)

    async def _start(self, pod: Object) -> None:
        await self.admits.wait()
        name = pod["metadata"]["name"]
        if self.pods.get(name) is None:
            return
        try:
            await until_done(lambda: asyncio.to_thread(self._bind, name))
            await until_done(
                lambda: self._client.patch(POD, self._namespace, name, READY, "status")
            )
        except NotFound:
            return
        kubeconfig = await self._kubeconfig(pod)
        if self.pods.get(name) is not None:
            self._run(pod, kubeconfig)

    def _run(self, pod: Object, kubeconfig: Path) -> None:
        driver = SimulatedDriver(pod, kubeconfig, self._threads, self._tasks)
        self.drivers[driver.name] = driver

    def _bind(self, name: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}/binding"
        try:
            self._api.rest.post(path, {"metadata": {"name": name}, "target": target})
        except ApiError as error:
            if error.status not in (404, 409):
                raise Retriable(str(error)) from error

    async def _kubeconfig(self, pod: Object) -> Path:
        """Return a kubeconfig of the flow's own account, with the operator's permissions for it."""
        account = pod["spec"]["serviceAccountName"]
        if account not in self._kubeconfigs:
            made = asyncio.to_thread(self._api.kubeconfig_of, self._namespace, account)
            self._kubeconfigs[account] = asyncio.create_task(made)
        return await self._kubeconfigs[account]

    async def _end(self, name: str) -> None:
        if driver := self.drivers.get(name):
            await driver.leave()
        await until_done(lambda: self._client.delete(POD, self._namespace, name, grace_s=0))


READY = {
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "driver",
                "image": "none",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": {"running": {}},
            }
        ],
    }
}
