"""Audit log of an API server, which shows the permissions that ServiceAccounts use."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],  # a watch is logged when it is opened, and again at its end
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
"""Requests of ServiceAccounts without their bodies, except those of Kubernetes' controllers."""


def write_policy(path: Path) -> None:
    """Write the policy for ``audit_flags``."""
    path.write_text(json.dumps(POLICY))  # JSON is YAML


def audit_flags(policy: str | Path, log: str | Path) -> list[str]:
    """Return the flags of an API server that logs to a file."""
    return [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]


def read_audit(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the events of a log. The last line may be incomplete."""
    for line in lines:
        if line.endswith("}") or line.endswith("}\n"):
            yield json.loads(line)
