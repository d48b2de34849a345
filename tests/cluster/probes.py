"""Probes of a container, counted as a kubelet does."""

import subprocess
import time
from concurrent.futures import Future, ThreadPoolExecutor

import urllib3
from cluster.pod_spec import Unsupported
from cluster.rest import Json

_asking = ThreadPoolExecutor(thread_name_prefix="probe")  # a frozen container does not answer
_http = urllib3.PoolManager(maxsize=10, retries=False, headers={"User-Agent": "kube-probe/1.37"})


class Probe:
    """Probe of a running container."""

    def __init__(self, container: Json, spec: Json, ip: str) -> None:
        self.passed = False
        """Whether it succeeded ``successThreshold`` times and has not failed as often since."""
        self.failed = False
        """Whether it failed ``failureThreshold`` times in a row."""
        self._spec = spec
        self._due_s = time.monotonic() + spec.get("initialDelaySeconds", 0)
        self._answer: Future[bool] | None = None
        self._row = 0  # number of equal results in a row, negative for failures
        if "exec" in spec:
            self._is_good = self._runs_well
            return
        if "httpGet" not in spec:
            why = f"container {container['name']}: only httpGet and exec probes are known here"
            raise Unsupported(why)
        self._is_good = self._answers_well
        get = spec["httpGet"]
        port = get["port"]
        if isinstance(port, str):
            port = next(p["containerPort"] for p in container["ports"] if p["name"] == port)
        self._url = f"{get['scheme'].lower()}://{get.get('host', ip)}:{port}{get.get('path', '/')}"

    def poll(self) -> None:
        """Start a probe if it is due, and read its result if there is one, without waiting."""
        if self._answer is None and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + self._spec["periodSeconds"]
            self._answer = _asking.submit(self._is_good)
        if self._answer is None or not self._answer.done():
            return
        good, self._answer = self._answer.result(), None
        self._row = (max(self._row, 0) + 1) if good else (min(self._row, 0) - 1)
        if self._row >= self._spec["successThreshold"]:
            self.passed, self.failed = True, False
        elif -self._row >= self._spec["failureThreshold"]:
            self.passed, self.failed = False, True

    def _runs_well(self) -> bool:
        try:
            done = subprocess.run(
                self._spec["exec"]["command"],
                timeout=self._spec["timeoutSeconds"],
                capture_output=True,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def _answers_well(self) -> bool:
        try:
            answer = _http.request(
                "GET", self._url, timeout=float(self._spec["timeoutSeconds"]), redirect=False
            )
        except urllib3.exceptions.HTTPError:
            return False
        return 200 <= answer.status < 400
