"""HTTP server for metrics in the Prometheus text format.

It does not use the official client, which cannot serve kafka-mirror-tester's metric names
(``headrace_spark.live_metrics``).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from headrace.errors import InvalidSpec, from_exception

Text = Callable[[], str]
"""Function that returns the current metrics in the Prometheus text format 0.0.4."""


@contextmanager
def served(address: str, port: int, text: Text) -> Iterator[int]:
    """Serve ``text`` at ``/metrics`` while the block runs, and yield the port.

    Raises:
        InvalidSpec: The port is not free, or the address does not belong to this machine.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Do not log requests."""

    try:
        server = ThreadingHTTPServer((address, port), Handler)
    except (OSError, OverflowError) as error:
        why = from_exception(error) if isinstance(error, OSError) else "there is no such port"
        raise InvalidSpec(
            f"cannot serve metrics on port {port} of {address}: {why}. Change --metrics-port or "
            "--metrics-address"
        ) from error
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
