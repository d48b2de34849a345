"""Stand-in for scheduler and kubelet that runs the pods of a namespace as local processes."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import urllib3
from cluster.api_server import ApiServer
from cluster.pod import RunningPod
from cluster.pod_spec import FOLDERS
from cluster.rest import ApiError, Json, Watch

from headrace.logs import get_logger

NODE = "node-1"
AGAIN_AFTER_S = 0.2
"""Interval between requests to an unreachable API server."""

UNANSWERED = (ApiError, urllib3.exceptions.HTTPError)
SERVICE = "https://kubernetes.default.svc:443"
"""Address of the API server in pods. The name does not resolve on this machine."""
GONE = (404, 409)
"""Status codes for a pod that was deleted or replaced by one with another uid."""

log = get_logger(__name__)

OnEvent = Callable[[str, Json], None]
OnList = Callable[[list[Json]], None]


class Kubelet:
    """Binds each pod of a namespace to its node and runs it, until ``stop``.

    As on a node, containers continue without an API server, and their changes are reported when it
    is reachable again.
    """

    def __init__(self, api: ApiServer, namespace: str, folder: Path) -> None:
        self._api = api
        self._rest = api.rest
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}"
        self._folder = folder
        self._sources: dict[tuple[str, str], Json] = {}
        self._sources_lock = threading.Lock()
        self._pods: dict[str, RunningPod] = {}  # by uid, including ended pods
        self._reported: dict[str, Json] = {}  # the status that the API server has
        self._gone: set[str] = set()
        self._watches: dict[str, Watch] = {}
        self._stopping = threading.Event()
        self._news = threading.Event()
        works: dict[str, Callable[[], None]] = {
            "secrets": lambda: self._follow("secrets", self._read_sources, self._read_sources),
            "configmaps": lambda: self._follow(
                "configmaps", self._read_sources, self._read_sources
            ),
            "pods": lambda: self._follow("pods", self._on_pods, self._on_pod),
            "status": self._report_all,
        }
        self._threads = [
            threading.Thread(target=work, name=f"kubelet-{name}", daemon=True)
            for name, work in works.items()
        ]
        for thread in self._threads:
            thread.start()

    # Methods for tests.

    def pods(self) -> list[RunningPod]:
        """Return the running pods, the oldest first."""
        return [pod for pod in list(self._pods.values()) if not pod.ended]

    def pod(self, name: str) -> RunningPod:
        """Return a pod by its name, even if it has ended, because its log still exists."""
        found = [pod for pod in list(self._pods.values()) if pod.name == name]
        assert found, f"no pod {name} was here; there are {[pod.name for pod in self.pods()]}"
        return found[-1]

    def stop(self) -> None:
        """End all containers with SIGKILL and remove the pods' objects."""
        self._stopping.set()
        self._news.set()
        for watch in list(self._watches.values()):
            watch.stop()
        for thread in self._threads:
            thread.join()
        for pod in self._pods.values():
            pod.end(0)
        for pod in self._pods.values():
            pod.join()
        for uid, pod in self._pods.items():
            if uid not in self._gone:
                self._remove(uid, pod)

    # Handlers of the API server's events.

    def _follow(self, what: str, on_list: OnList, on_event: OnEvent) -> None:
        while not self._stopping.is_set():
            try:
                watch = self._watches[what] = self._rest.watch(f"{self._path}/{what}")
                if not self._stopping.is_set():  # otherwise this one would never be ended
                    on_list(watch.items)
                    for kind, found in watch:
                        on_event(kind, found)
            except UNANSWERED as error:
                log.info("watching again", what=what, namespace=self._namespace, error=str(error))
            self._stopping.wait(AGAIN_AFTER_S)

    def _read_sources(self, *_: object) -> None:
        """Read all of them again, as there are few and the order of events then does not matter."""
        with self._sources_lock:
            self._sources = {
                (kind, found["metadata"]["name"]): found
                for kind, what in (("secret", "secrets"), ("configMap", "configmaps"))
                for found in self._rest.get(f"{self._path}/{what}")["items"]
            }

    def _on_pods(self, found: list[Json]) -> None:
        for uid in self._pods.keys() - {pod["metadata"]["uid"] for pod in found}:
            self._end_of(uid)
        for pod in found:
            self._on_pod("ADDED", pod)

    def _on_pod(self, kind: str, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self._end_of(uid)
        elif "nodeName" not in pod["spec"]:
            self._bind(pod)
        elif uid in self._pods:
            self._pods[uid].update(pod)
        else:
            self._pods[uid] = self._run(pod)

    def _end_of(self, uid: str) -> None:
        """End a pod whose object was deleted."""
        self._gone.add(uid)
        if uid in self._pods:
            self._pods[uid].end()

    # Changes to the cluster.

    def _bind(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        binding = {"metadata": {"name": name, "uid": pod["metadata"]["uid"]}, "target": target}
        try:
            self._rest.post(f"{self._path}/pods/{name}/binding", binding)
        except ApiError as error:
            if error.status not in GONE:
                raise

    def _run(self, pod: Json) -> RunningPod:
        self._read_sources()  # objects created before the pod are visible to it, as on a node
        metadata = pod["metadata"]
        folder = self._folder / f"{metadata['name']}.{metadata['uid'][:8]}"
        folder.mkdir(parents=True, exist_ok=True)
        token = self._api.token(self._namespace, pod["spec"]["serviceAccountName"], pod)
        kubeconfig = folder / "kubeconfig"
        self._api.write_kubeconfig(kubeconfig, {"token": token}, self._namespace)
        return RunningPod(
            pod,
            _address(),
            folder,
            variables={"KUBECONFIG": str(kubeconfig)},
            elsewhere={**FOLDERS, SERVICE: self._api.url},
            sources=lambda: self._sources,
            changed=self._news.set,
        )

    def _report_all(self) -> None:
        """Report all local statuses to the API server."""
        while not self._stopping.is_set():
            self._news.wait()
            self._news.clear()
            for uid, pod in list(self._pods.items()):
                try:
                    if uid not in self._gone:
                        self._report(uid, pod)
                except UNANSWERED as error:
                    log.info("telling again", pod=pod.name, error=str(error))
                    self._stopping.wait(AGAIN_AFTER_S)
                    self._news.set()

    def _report(self, uid: str, pod: RunningPod) -> None:
        ended, status = pod.ended, pod.status
        if status and status != self._reported.get(uid):
            patch = {"metadata": {"uid": uid}, "status": status}
            self._rest.merge(f"{self._path}/pods/{pod.name}/status", patch)
            self._reported[uid] = status
        if ended:
            self._remove(uid, pod)
            self._gone.add(uid)

    def _remove(self, uid: str, pod: RunningPod) -> None:
        try:
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            self._rest.delete(f"{self._path}/pods/{pod.name}", **options)
        except ApiError as error:
            if error.status not in GONE:
                raise


@contextmanager
def running_kubelet(api: ApiServer, namespace: str, folder: Path) -> Iterator[Kubelet]:
    """Run a kubelet for a namespace within the ``with`` block, with pods' logs in ``folder``."""
    kubelet = Kubelet(api, namespace, folder)
    try:
        yield kubelet
    finally:
        api.recover()
        kubelet.stop()


def _address() -> str:
    """Return a loopback address that no other process on this machine is likely to use."""
    return f"127.{random.randint(64, 127)}.{random.randint(0, 255)}.{random.randint(1, 254)}"
