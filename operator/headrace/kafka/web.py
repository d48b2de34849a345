"""Plain HTTP requests, over TLS or not, without redirects and proxies."""

import http.client
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

TIMEOUT_S = 5.0
"""Time-out of each step of an exchange, in seconds. Callers wait up to 10 s for a connection."""
_MAX_BYTES = 1 << 20


def tls_context(trusted: str) -> ssl.SSLContext:
    """Return a context that trusts these authorities (PEM), or the system's if there are none.

    Raises:
        ValueError: The certificates cannot be used. ``ssl.SSLError`` has the same cause.
    """
    context = ssl.create_default_context(cadata=trusted or None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the same setting as for brokers
    return context


def exchange(
    method: str,
    url: str,
    headers: Mapping[str, str],
    context: ssl.SSLContext | None,
    body: str | None = None,
) -> tuple[int, bytes]:
    """Send a request, and return the status and the body of the response.

    Raise ``OSError``, ``http.client.HTTPException`` or ``ValueError`` if there is no response.
    ``failure_reason`` describes these errors.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.read(_MAX_BYTES)
    finally:
        connection.close()


def failure_reason(error: Exception) -> str:
    """Return why there is no response, as the predicate of a sentence about the server."""
    if isinstance(error, socket.gaierror):
        return f"has a name that does not resolve ({error.strerror})"
    if isinstance(error, TimeoutError):
        return f"does not answer within {TIMEOUT_S:.0f} s"
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections (nothing listens there)"
    if isinstance(error, ssl.SSLError):
        return f"does not speak TLS as it should ({error.reason})"
    if isinstance(error, OSError):
        return f"cannot be reached ({error.strerror or type(error).__name__})"
    return f"does not answer as a web server does ({type(error).__name__})"
