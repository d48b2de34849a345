"""All places to which a flow in a cluster writes, to be searched for its secrets."""

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

import urllib3
from cluster.kubelet import Kubelet
from support.operators import Operator, Resources
from support.security import command_lines

from headrace.sandbox import Sandbox

STEM = "canary-7351"
PATHS = ("/metrics", "/healthz", "/readyz", "/", "/debug")
_ANSWER_S = 60.0
"""Longest wait for an answer of a driver's port."""


class Scene:
    """An operator and drivers that say all they can, and everything that they have written."""

    def __init__(
        self, resources: Resources, operator: Operator, kubelet: Kubelet, locked: Sandbox
    ) -> None:
        self.resources, self.operator, self.kubelet = resources, operator, kubelet
        self._locked = locked

    def make_secrets(self, changed: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Create the Secrets of both clusters, and return the values that must not be visible.

        ``changed`` replaces some of the Secrets or adds more, whose values are not returned.
        """
        key = (self._locked.secrets / "west-client" / "tls.key").read_text()
        files = {
            folder.name: {file.name: file.read_text() for file in folder.iterdir()}
            for folder in self._locked.secrets.iterdir()
        }
        for name, content in {**files, **changed}.items():
            self.resources.apply(secret(name, content))
        return key.splitlines()[1:-1]

    def conditions(self, kind: str, name: str) -> dict[str, dict[str, str]]:
        status = self.resources.get(kind, name).get("status", {})
        return {one["type"]: one for one in status.get("conditions", [])}

    def places(self) -> dict[str, str]:
        """Return all visible texts except Secrets, by their place."""
        kinds = self.resources.kubectl(
            "api-resources", "--namespaced", "--verbs=list", "--output=name"
        ).split()
        kinds = [kind for kind in kinds if kind != "secrets"]
        pods = self.kubelet.pods()
        assert pods
        return {
            "objects": self.resources.kubectl("get", ",".join(kinds), "-o", "json",
                                              "--show-managed-fields"),
            "operator's log": self.operator.log,
            **{f"operator's {path}": self.operator.get(path) for path in PATHS},
            "command lines and environments": command_lines(),
            **{f"log of {pod.name}": pod.log for pod in pods},
            **{f"{pod.ip}{path}": answer(pod.ip, path) for pod in pods for path in PATHS},
            **{f"log of {broker}": broker.log.read_text(errors="replace")
               for cluster in self._locked.clusters for broker in cluster.brokers},
        }  # fmt: skip


def answer(ip: str, path: str) -> str:
    """Return the answer of a driver's port, also if it is an error."""
    try:
        url = f"http://{ip}:8080{path}"
        return urllib3.request("GET", url, timeout=_ANSWER_S, retries=False).data.decode()
    except urllib3.exceptions.HTTPError as error:
        return str(error)


def secret(name: str, content: Mapping[str, str]) -> dict[str, Any]:
    data = {"stringData": dict(content)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}} | data


def assert_unseen(values: Iterable[str], places: Mapping[str, str]) -> None:
    """Assert that no text contains a value, neither as it is nor quoted nor encoded."""
    values = [form for value in values for form in (value, json.dumps(value)[1:-1])]
    encoded = [base64.b64encode(value.encode()).decode() for value in values]
    for where, text in places.items():
        seen = [value for value in (*values, *encoded, STEM) if value in text]
        assert not seen, f"a secret is to be seen in {where}"
