"""Errors of the API server: classes for the cases that callers handle, with clear messages."""

import json
import re
from collections.abc import Mapping
from typing import Any

from headrace.errors import Fatal, HeadraceError, Retriable, Unreachable
from headrace.k8s.kinds import Kind


class Unavailable(Unreachable):
    """The API server does not respond, or reports that it cannot process requests."""


class NotFound(HeadraceError):
    """The object does not exist."""


class NotServed(Retriable):
    """The API server does not serve the kind.

    This happens before the custom resource definition is applied, and just after the API server's
    start. It does not show whether an object exists.
    """


class Conflict(HeadraceError):
    """The object exists already, or has changed since it was read."""


class Expired(HeadraceError):
    """The resourceVersion is too old (status 410). List the objects again."""


class Forbidden(Fatal):
    """A permission is missing. The message names the verb and the resource."""


class ObjectInvalid(Fatal):
    """The object violates its definition: a schema, a CEL rule or an admission policy.

    The message is the API server's.
    """


class Undeclared(ObjectInvalid):
    """The object has a field that the custom resource definition in the cluster does not have.

    The definition is of an older version.
    """


def sentence(client_name: str, verb: str, kind: Kind, namespace: str | None, name: str = "") -> str:
    """Return what failed: ``the operator could not patch deployments.apps x in namespace y``."""
    return f"{client_name} could not {verb} {_what(kind, namespace, name)}"


def translate(status: int, body: Mapping[str, Any], tried: str) -> HeadraceError:
    """Return the error for a response of the API server. ``body`` is its ``Status`` object."""
    message = str(body.get("message") or f"status {status}")
    if status == 403:
        return Forbidden(_without_right(tried, message))
    if status == 404 and (
        message == _NO_PATH or "could not find the requested resource" in message
    ):
        return NotServed(
            f"{tried}: the API server does not know this kind: apply the definitions (CRDs) first"
        )
    if _UNDECLARED in message:
        return Undeclared(
            f"{tried}: {message.rpartition(': .')[2]}. The definition (CRD) in the cluster is "
            "older than this program: apply the definitions that belong to it"
        )
    if status in (401, 429) or status >= 500:
        return Unavailable(f"{tried}: the API server answers {status}: {message}")
    return _CLASSES.get(status, ObjectInvalid)(f"{tried}: {message}")


_NO_PATH = "404 page not found"
_UNDECLARED = "field not declared in schema"
"""Message with which server-side apply rejects an unknown field. The status is 500."""
_CLASSES: dict[int, type[HeadraceError]] = {404: NotFound, 409: Conflict, 410: Expired}


def read_status(text: str) -> Mapping[str, Any]:
    """Return the ``Status`` object in a response. A proxy may send any text instead."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {"message": text.strip()[:200]}


def _what(kind: Kind, namespace: str | None, name: str) -> str:
    where = f" in namespace {namespace}" if namespace else " in all namespaces"
    return kind.resource + (f" {name}" if name else "") + (where if kind.namespaced else "")


def _without_right(tried: str, message: str) -> str:
    missing = re.search(
        r'User "(?P<user>[^"]+)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"'
        r'(?: in API group "(?P<group>[^"]*)")?(?: in the namespace "(?P<namespace>[^"]+)")?',
        message,
    )
    who = tried.partition(" could not ")[0]
    if missing is None:  # for example a quota, a policy, or a namespace that is being deleted
        return f"{tried}: {message}"
    resource, _, sub = missing["resource"].partition("/")
    resource += f".{missing['group']}" if missing["group"] else ""
    resource += f"/{sub}" if sub else ""
    where = f"in namespace {missing['namespace']}" if missing["namespace"] else "cluster-wide"
    return (
        f"{who} may not {missing['verb']} {resource} {where}: give that right to {missing['user']}"
    )
