"""A schema registry with Confluent's REST API, as far as audits ask it, with and without TLS."""

import json
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from headrace.sandbox import Authority

HOST = "127.0.0.1"


class FakeRegistry:
    """Knows some schema ids, and answers ``GET /schemas/ids/<id>``."""

    def __init__(self, ids: set[int], authorization: str | None = None, *, tls: bool) -> None:
        """Listen on a free port. ``authorization`` is the header that requests must have."""
        self.ids, self.authorization = ids, authorization
        self.asked: list[str] = []
        self.answers: list[int] = []
        """Statuses of the next answers, which replace the regular ones."""
        authority = Authority("registry")
        self.certificate = authority.certificate.decode()
        self._server = ThreadingHTTPServer((HOST, 0), _handler(self))
        if tls:
            certificate, key = authority.issue("registry", address=HOST)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            with tempfile.TemporaryDirectory() as folder:
                pem = Path(folder, "server.pem")
                pem.write_bytes(certificate + key)
                context.load_cert_chain(pem)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://{HOST}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, authorization: str | None) -> tuple[int, object]:
        """Return the status and the document of an answer."""
        self.asked.append(path)
        if self.answers:
            return self.answers.pop(0), {"error_code": 50001, "message": "Error in the store"}
        if authorization != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        prefix, _, schema_id = path.rpartition("/")
        if prefix != "/schemas/ids":
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        if int(schema_id) in self.ids:
            return 200, {"schema": '"string"'}
        return 404, {"error_code": 40403, "message": f"Schema {schema_id} not found"}


@contextmanager
def running_schema_registry(
    ids: set[int], authorization: str | None = None, *, tls: bool = False
) -> Iterator[FakeRegistry]:
    """Yield a registry that knows these schema ids."""
    registry = FakeRegistry(ids, authorization, tls=tls)
    try:
        yield registry
    finally:
        registry.stop()


def framed(schema_id: int, payload: bytes = b"") -> bytes:
    """Return a key or a value in Confluent's wire format."""
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def _handler(registry: FakeRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, document = registry.answer(self.path, self.headers["Authorization"])
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return Handler
