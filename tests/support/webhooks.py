"""Admission webhooks: one that does not answer, and one that changes objects."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cluster.certificates import Authority
from cluster.kubectl import Kubectl, KubectlError
from support.manifests import Document
from support.records import unique

from headrace.sandbox.processes import HOST

UNREACHABLE = {"url": "https://127.0.0.1:1/"}


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


@contextmanager
def injecting_webhook(
    api: Kubectl,
    namespace: str,
    folder: Path,
    change: Callable[[Document], None],
    wait_until: Callable[..., Any],
) -> Iterator[None]:
    """Change each Deployment of the namespace by ``change`` whenever it is written."""
    name = unique("injector")
    called = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            called.set()
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            deployment = request["object"]
            change(deployment)
            parts = ("metadata", "spec")
            patch = [{"op": "replace", "path": f"/{x}", "value": deployment[x]} for x in parts]
            answer = {
                "uid": request["uid"],
                "allowed": True,
                "patchType": "JSONPatch",
                "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
            }
            review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
            body = json.dumps(review | {"response": answer}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    authority = Authority(folder)
    authority.sign("webhook", "webhook")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "webhook.crt", folder / "webhook.key")
    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = {
        "url": f"https://{HOST}:{server.server_address[1]}/",
        "caBundle": base64.b64encode(authority.certificate.read_bytes()).decode(),
    }
    api.apply(_webhook(name, namespace, "Mutating", client))
    probe = ("create", "deployment", name, "--image=any", "--dry-run=server")

    def changes() -> bool:  # it takes effect after a moment
        api.kubectl("-n", namespace, *probe)
        return called.is_set()

    try:
        wait_until(changes)
        yield
    finally:
        api.kubectl("delete", "mutatingwebhookconfiguration", name)
        server.shutdown()
        server.server_close()


def _webhook(
    name: str, namespace: str, type: str = "Validating", client: Document = UNREACHABLE
) -> Document:
    deployments = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
    webhook = {
        "name": "guard.example.dev",
        "clientConfig": client,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [deployments],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{type}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }
