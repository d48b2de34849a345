"""The API server, as far as headrace speaks to it: verbs on plain objects, each with a time-out."""

import json
from collections.abc import AsyncGenerator

import aiohttp
from kubernetes.aio.client import ApiClient

from headrace.k8s.errors import NotFound, sentence, translate
from headrace.k8s.kinds import Kind, Object, Objects, kind_of
from headrace.k8s.requests import ALL, TIMEOUT_S, Requests, no_answer

_PAGE = 500
"""Objects a list request asks for at once, as client-go does."""
_SILENCE_S = 75.0
"""A watch receives a bookmark every minute. A longer silence is a dead connection, or a kind of
which an API server has seen no event since it was started: it sends no bookmarks of it."""

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_MERGE_PATCH = "application/merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML


class Client(Requests):
    """For one event loop."""

    def __init__(self, api: ApiClient, who: str, namespace: str = "default") -> None:
        super().__init__(api, who)
        self.namespace = namespace
        """Where people mean when they name none: the namespace of their context."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """An object as it is now, or ``None``."""
        try:
            return await self._send("get", "GET", kind, namespace, name)
        except NotFound:
            return None

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
    ) -> Objects:
        """All objects of a kind, as they are now (no older state from a cache)."""
        found, _ = await self.list_versioned(
            kind, namespace, labels=labels, fields=fields, metadata_only=metadata_only
        )
        return found

    async def list_versioned(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
    ) -> tuple[Objects, str]:
        """As ``list``, with the resourceVersion from which a watch goes on."""
        accept = _METADATA_ONLY if metadata_only else ALL
        items: Objects = []
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(_PAGE)}
        while True:
            page = await self._send("list", "GET", kind, namespace, query=query, accept=accept)
            # An item of a list does not repeat what the list says of all; no items may be null.
            type_meta = {"apiVersion": kind.api_version, "kind": kind.name}
            items += [type_meta | item for item in page["items"] or ()]
            if not (token := page["metadata"].get("continue")):
                return items, page["metadata"]["resourceVersion"]
            query["continue"] = token

    async def create(self, object: Object) -> Object:
        """Make an object; ``Conflict`` when there is one, or a quota is being counted."""
        kind, namespace, _ = _identity(object)
        return await self._send("create", "POST", kind, namespace, body=object)

    async def apply(
        self, object: Object, *, manager: str, force: bool = True, subresource: str = ""
    ) -> Object:
        """Server-side apply: the fields that are named are the manager's, all others stay."""
        kind, namespace, name = _identity(object)
        return await self._send(
            "patch",
            "PATCH",
            kind,
            namespace,
            name,
            subresource=subresource,
            body=object,
            query={"fieldManager": manager, "force": str(force).lower()},
            content_type=_APPLY_PATCH,
        )

    async def replace(self, object: Object, *, subresource: str = "") -> Object:
        """Update: ``Conflict`` when the object is not of the resourceVersion it carries."""
        kind, namespace, name = _identity(object)
        return await self._send(
            "update", "PUT", kind, namespace, name, subresource=subresource, body=object
        )

    async def replace_status(self, object: Object) -> Object:
        """Update all of the status, and nothing else; ``Conflict`` as for ``replace``."""
        return await self.replace(object, subresource="status")

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, patch: Object, subresource: str = ""
    ) -> Object:
        """Merge patch; a ``metadata.resourceVersion`` in it makes it conditional (``Conflict``)."""
        return await self._send(
            "patch",
            "PATCH",
            kind,
            namespace,
            name,
            subresource=subresource,
            body=patch,
            content_type=_MERGE_PATCH,
        )

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        resource_version: str | None = None,
        propagation: str = "Background",
        grace_s: int | None = None,
    ) -> bool:
        """Delete an object; whether there was one. ``Conflict``: it is of another version."""
        options: Object = {"propagationPolicy": propagation}
        if resource_version is not None:
            options["preconditions"] = {"resourceVersion": resource_version}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        try:
            await self._send("delete", "DELETE", kind, namespace, name, body=options)
        except NotFound:
            return False
        return True

    async def watch(
        self,
        kind: Kind,
        namespace: str | None,
        resource_version: str,
        *,
        labels: str = "",
        fields: str = "",
        timeout_s: int = 300,
    ) -> AsyncGenerator[tuple[str, Object]]:
        """What happens from a version on: ``CONNECTED`` first, when the watch is open, then
        (``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``, object), until the API server ends it
        (``timeout_s``), or it was silent for so long that the connection may be dead.

        Raises ``Expired`` when the version is too old, ``Unavailable`` when the connection breaks.
        """
        tried = sentence(self.who, "watch", kind, namespace)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "labelSelector": labels,
            "fieldSelector": fields,
            "timeoutSeconds": str(timeout_s),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_S, sock_read=_SILENCE_S)
        try:
            with self._trying("watch", kind, tried):
                response = await self._request(
                    "GET", kind.path(namespace), query, tried=tried, timeout=timeout
                )
            async with response:
                yield "CONNECTED", {}
                # Lines of any length: the client's own watch stops at those beyond its buffer.
                pending = b""
                try:
                    async for chunk in response.content.iter_any():
                        *lines, pending = (pending + chunk).split(b"\n")
                        for line in lines:
                            event = json.loads(line)
                            if event["type"] == "ERROR":
                                status = event["object"]
                                raise translate(int(status.get("code") or 500), status, tried)
                            yield event["type"], event["object"]
                except aiohttp.SocketTimeoutError:
                    return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise no_answer(tried, error) from error


def _identity(object: Object) -> tuple[Kind, str | None, str]:
    metadata = object["metadata"]
    return kind_of(object), metadata.get("namespace"), metadata["name"]
