"""A server of the external metrics API, behind the aggregation layer of an API server.

It stands in for a metrics adapter: a HorizontalPodAutoscaler receives the values that an operator's
``/metrics`` has at that moment, without a Prometheus in between.
"""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cluster.api_server import ApiServer
from cluster.certificates import Authority
from prometheus_client.parser import text_string_to_metric_families

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
GROUP_VERSION = f"{GROUP}/{VERSION}"
SERVICE = "metrics-api"

Scrape = Callable[[], str]


def values(page: str, namespace: str, metric: str, labels: dict[str, str]) -> list[float]:
    """Return the values of the series of one namespace that have these labels."""
    wanted = {"namespace": namespace, **labels}.items()
    return [
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == metric and wanted <= sample.labels.items()
    ]


@contextmanager
def serving_metrics(
    api_server: ApiServer, namespace: str, folder: Path, scrape: Scrape
) -> Iterator[None]:
    """Serve the group ``external.metrics.k8s.io`` from ``scrape`` until the block ends.

    Use it only with an API server of the test's own, because an API group concerns the whole
    cluster.
    """
    folder.mkdir()
    authority = Authority(folder)
    authority.sign("server", "metrics", servers=[f"{SERVICE}.{namespace}.svc"])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "server.crt", folder / "server.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(scrape))
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    service = {"name": SERVICE, "namespace": namespace, "port": server.server_address[1]}
    api_service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": service,
            "caBundle": base64.b64encode(authority.certificate.read_bytes()).decode(),
        },
    }
    try:
        api_server.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": SERVICE},
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            },
            api_service,
            namespace=namespace,
        )
        name = f"apiservice/{VERSION}.{GROUP}"
        api_server.kubectl("wait", "--for=condition=Available", name, "--timeout=300s")
        yield
    finally:
        api_server.recover()
        # While it is registered and does not answer, no namespace can be deleted.
        api_server.kubectl("delete", "apiservice", f"{VERSION}.{GROUP}", "--ignore-not-found")
        server.shutdown()
        server.server_close()


def _handler(scrape: Scrape) -> type[BaseHTTPRequestHandler]:
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            match address.path.strip("/").split("/"):
                case ["apis", group, version] if f"{group}/{version}" == GROUP_VERSION:
                    found: Any = {
                        "apiVersion": "v1",
                        "kind": "APIResourceList",
                        "groupVersion": GROUP_VERSION,
                        "resources": [],
                    }
                case ["apis", _, _, "namespaces", namespace, metric]:
                    query = parse_qs(address.query).get("labelSelector", [""])[0]
                    labels = dict(pair.split("=", 1) for pair in query.split(",") if pair)
                    with one_at_a_time:
                        page = scrape()
                    found = _list(metric, labels, values(page, namespace, metric, labels))
                case _:
                    self._answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure"})
                    return
            self._answer(200, found)

        def _answer(self, status: int, found: Any) -> None:
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Discard the message."""

    return Handler


def _list(metric: str, labels: dict[str, str], found: list[float]) -> dict[str, Any]:
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "ExternalMetricValueList",
        "metadata": {},
        "items": [
            {
                "metricName": metric,
                "metricLabels": labels,
                "timestamp": "2026-01-01T00:00:00Z",
                "value": str(int(value)),
            }
            for value in found
        ],
    }
