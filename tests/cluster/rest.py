"""Minimal JSON client of the API server for the tests' own components."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import urllib3

Json = dict[str, Any]

CONNECT_S, READ_S = 10, 30
WATCH_S = 300
"""Time after which the API server ends a watch. A new one is then started."""


class ApiError(Exception):
    """Error that the API server returned, with its message and HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Rest:
    """Client of an API server as its administrator. Thread-safe.

    Raises ApiError if the API server rejects a request, and urllib3's HTTPError if it does not
    answer.
    """

    def __init__(self, url: str, pki: Path) -> None:
        self._url = url
        self._pool = urllib3.PoolManager(
            maxsize=20,
            retries=False,
            ca_certs=str(pki / "ca.crt"),
            cert_file=str(pki / "admin.crt"),
            key_file=str(pki / "admin.key"),
        )

    def get(self, path: str) -> Json:
        """Read an object or a list."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: Json) -> Json:
        """Create an object."""
        return self._ask("POST", path, body)

    def delete(self, path: str, **options: Any) -> Json:
        """Delete an object with these ``DeleteOptions``."""
        return self._ask("DELETE", path, options)

    def merge(self, path: str, body: Json) -> Json:
        """Apply a JSON merge patch."""
        return self._ask("PATCH", path, body, "application/merge-patch+json")

    def watch(self, path: str) -> "Watch":
        """Return the content of a list and watch it from there."""
        found = self.get(path)
        at = found["metadata"]["resourceVersion"]
        answer = self._pool.request(
            "GET",
            f"{self._url}{path}?watch=1&resourceVersion={at}&timeoutSeconds={WATCH_S}",
            preload_content=False,
            timeout=urllib3.Timeout(connect=CONNECT_S, read=WATCH_S + READ_S),
        )
        if answer.status >= 400:
            _check(answer.status, answer.data)
        return Watch(found["items"], answer)

    def _ask(
        self, method: str, path: str, body: Json | None, content_type: str = "application/json"
    ) -> Json:
        answer = self._pool.request(
            method,
            self._url + path,
            body=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type},
            timeout=urllib3.Timeout(connect=CONNECT_S, read=READ_S),
        )
        _check(answer.status, answer.data)
        return cast(Json, json.loads(answer.data))


class Watch:
    """Content of a list, then each change to it, until the API server or ``stop`` ends it.

    Raises ApiError or urllib3's HTTPError if it breaks. Start a new watch then.
    """

    def __init__(self, items: list[Json], answer: urllib3.BaseHTTPResponse) -> None:
        self.items = items
        """Content of the list at the start of the watch."""
        self._answer = answer
        self._stopped = False

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        """Yield the type (``ADDED``, ``MODIFIED`` or ``DELETED``) and the object of each event."""
        rest = b""
        for chunk in self._answer.stream(amt=None):
            if self._stopped:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for event in map(json.loads, lines):
                if event["type"] == "ERROR":
                    raise ApiError(event["object"]["code"], event["object"]["message"])
                yield event["type"], event["object"]

    def stop(self) -> None:
        """End the watch. Thread-safe."""
        # First: a TLS socket that is shut down hands what comes last to its reader undeciphered.
        self._stopped = True
        with suppress(ValueError, RuntimeError, OSError):  # it has already ended
            self._answer.shutdown()


def _check(status: int, body: bytes) -> None:
    if status < 400:
        return
    try:
        message = json.loads(body)["message"]
    except (ValueError, KeyError):
        message = body.decode(errors="replace")
    raise ApiError(status, message)
