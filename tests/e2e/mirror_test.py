"""A mirror test that runs in pods, as a user of kubectl sees it."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cluster.real import Cluster

from headrace.api.labels import END_LOAD_ANNOTATION, MIRROR_TEST_LABEL


class MirrorTestInPods:
    """A mirror test in pods."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self.cluster, self.namespace, self.name = cluster, namespace, name

    def status(self) -> Any:
        """Return the status with its conditions by type."""
        found = self.cluster.get("-n", self.namespace, "mtest", self.name).get("status", {})
        return {**found, **{one["type"]: one for one in found.get("conditions", ())}}

    def ready(self) -> Any:
        """Return the condition Ready, or an empty one."""
        return self.status().get("Ready", {"message": ""})

    def verdict(self) -> str | None:
        """Return the verdict, or None until the test has ended."""
        found: str | None = self.status().get("verdict")
        return found

    def result(self) -> Any:
        """Return the content of its ``report.json``."""
        found = self.cluster.get("-n", self.namespace, "configmap", f"{self.name}-report")
        return json.loads(found["data"]["report.json"])

    def end_load(self) -> None:
        """End the load as ``kubectl headrace test end-load`` does."""
        ended = f"{END_LOAD_ANNOTATION}={datetime.now(UTC).isoformat()}"
        self.cluster.kubectl("-n", self.namespace, "annotate", f"mtest/{self.name}", ended)

    def pods(self, labels: str) -> dict[str, Any]:
        """Return its pods that also have these labels, by name."""
        own = f"{MIRROR_TEST_LABEL}={self.name}"
        return self.cluster.pods(self.namespace, f"{own},{labels}" if labels else own)

    def report(self, folder: Path, *options: str, browser: str = "false") -> str:
        """Return the output of ``kubectl headrace test report``, which writes below ``folder``."""
        verb = ("-m", "headrace", "test", "report", self.name, "-n", self.namespace, *options)
        done = subprocess.run(
            [sys.executable, *verb],
            env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig), "BROWSER": browser},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr
