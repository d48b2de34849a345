"""An admission webhook that does not answer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cluster.kubectl import Kubectl, KubectlError
from support.manifests import Document
from support.records import unique


@contextmanager
def failing_webhook(api: Kubectl, namespace: str, wait_until: Callable[..., Any]) -> Iterator[None]:
    """Meanwhile no Deployment of the namespace can be written."""
    name = unique("guard")
    asked = ("annotate", "deployments", "--all", "--overwrite", "look=in-vain", "--dry-run=server")

    def refuses() -> bool:  # it takes effect after a moment
        try:
            api.kubectl("-n", namespace, *asked)
        except KubectlError as error:
            return "failed calling webhook" in str(error)
        return False

    api.apply(_webhook(name, namespace))
    try:
        wait_until(refuses)
        yield
    finally:
        api.kubectl("delete", "validatingwebhookconfiguration", name)


def _webhook(name: str, namespace: str) -> Document:
    deployments = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
    webhook = {
        "name": "guard.example.dev",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [deployments],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }
