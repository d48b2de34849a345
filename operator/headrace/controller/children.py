"""Creates, changes and deletes the objects that flows and tests own."""

import hashlib
import json
from dataclasses import dataclass

from headrace.api import OPERATOR_MANAGER, MirrorTest, ReplicationFlow
from headrace.controller.events import NameTaken
from headrace.controller.resources.deployment import POD_TEMPLATE_HASH, driver_name, driver_selector
from headrace.errors import Retriable
from headrace.k8s import (
    DEPLOYMENT,
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Client,
    Conflict,
    Kind,
    Object,
    kind_of,
    owns,
)

Owner = ReplicationFlow | MirrorTest

_CALLED = {"ReplicationFlow": "flow", "MirrorTest": "test"}


async def check_name(client: Client, owner: Owner, manifest: Object) -> bool:
    """Check that no other owner has an object of that name, and return True if this owner has one.

    Applying a manifest to another owner's object would take over some of its fields.

    Raises:
        NameTaken: Another owner has an object of that name.
        Retriable: The object of an earlier flow or test with the same name is being deleted.
    """
    metadata = manifest["metadata"]
    there = await client.get(kind_of(manifest), metadata["namespace"], metadata["name"])
    if there is None or owns(owner, there):
        return there is not None
    what = f"{manifest['kind']} {metadata['name']} in namespace {metadata['namespace']}"
    called = _CALLED[owner.kind]
    owners = there["metadata"].get("ownerReferences") or []
    if any((one["kind"], one["name"]) == (owner.kind, owner.metadata.name) for one in owners):
        raise Retriable(f"{what} of an earlier {called} of this name is being deleted")
    raise NameTaken(
        f"{what} is there already and is not of this {called}, which needs one of that name: "
        f"delete or rename it, or give the {called} another name"
    )


async def create(client: Client, owner: Owner, manifest: Object) -> None:
    """Create an object, unless another reconcile or a request with a lost response created it.

    Raise errors as ``check_name`` does. Raise ``Conflict`` for any other conflict, for example
    between two requests that a quota counts at the same time.
    """
    try:
        await client.create(manifest)
    except Conflict:
        if not await check_name(client, owner, manifest):
            raise


CHILDREN = (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, POD_DISRUPTION_BUDGET, NETWORK_POLICY, DEPLOYMENT)
"""Kinds that ``apply`` creates. Units are watched separately."""
_KINDS = {kind.name: kind for kind in CHILDREN}
ChildName = tuple[str, str, str]
"""Kind, namespace and name."""


@dataclass(frozen=True)
class _Applied:
    owner: str | None
    """Uid of the owning flow.

    A flow that is created again finds the children of the earlier one.
    """
    flow: str
    """Name of the owning flow."""
    digest: str
    """Digest of the manifest."""
    fields: str
    """Fields of the object that the API server records as the operator's."""


class Children:
    """Writes the manifests of all flows' children. Use it from one event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._applied: dict[ChildName, _Applied] = {}
        self._refused: dict[ChildName, str] = {}
        self._templates: dict[ChildName, Object] = {}

    async def apply(self, flow: ReplicationFlow, manifest: Object) -> None:
        """Apply a child's manifest unless the child is up to date.

        Raise ``NameTaken`` if the child belongs to another owner, and the errors of
        ``Client.apply``.
        """
        name, wanted, owner = _name(manifest), _digest(manifest), flow.metadata.uid
        applied = self._applied.get(name)
        if applied is not None and (applied.owner, applied.digest) == (owner, wanted):
            return
        if applied is None or applied.owner != owner:
            await check_name(self._client, flow, manifest)
        written = await self._client.apply(manifest, manager=OPERATOR_MANAGER)
        self._applied[name] = _Applied(owner, flow.metadata.name, wanted, _our_fields(written))
        if name[0] == DEPLOYMENT.name:
            self._templates[name] = written["spec"]["template"]

    async def remove(self, flow: ReplicationFlow, kind: Kind) -> None:
        """Delete a child that the settings no longer require.

        Raise errors as ``Client.delete`` does.
        """
        name = _child(flow, kind)
        none = _Applied(flow.metadata.uid, flow.metadata.name, "", _our_fields(None))
        if self._applied.get(name) == none:
            return
        there = await self._client.get(kind, *name[1:])
        if there is not None and owns(flow, there):
            version = there["metadata"]["resourceVersion"]
            await self._client.delete(kind, *name[1:], resource_version=version)
        self._applied[name] = none

    async def create(self, flow: ReplicationFlow, manifest: Object, manager: str) -> Object:
        """Create a missing unit as ``manager``, and return it. Raise errors as ``apply`` does."""
        await check_name(self._client, flow, manifest)
        return await self._client.apply(manifest, manager=manager)

    def observe(self, object: Object, *, deleted: bool) -> bool:
        """Record a child from its watch, and return True if its flow must be reconciled.

        The reconcile applies a child that was deleted or that another manager changed.
        """
        name = _name(object)
        before = self._refused.pop(name, "")
        if name[0] == DEPLOYMENT.name:
            self._templates[name] = {} if deleted else object["spec"]["template"]
        if not deleted and (refused := _refused_pods(object)):
            self._refused[name] = refused
        applied = self._applied.get(name)
        if not deleted and (applied is None or _our_fields(object) == applied.fields):
            return before != self._refused.get(name, "")
        self._applied.pop(name, None)
        return True

    def refused_pods(self, flow: ReplicationFlow) -> str:
        """Return the API server's reason for rejecting a flow's driver pods, or an empty string."""
        return self._refused.get(_child(flow, DEPLOYMENT), "")

    def template(self, flow: ReplicationFlow) -> Object | None:
        """Return the pod template of a flow's Deployment, or None if it is unknown."""
        return self._templates.get(_child(flow, DEPLOYMENT)) or None

    async def newest_replica_set(self, flow: ReplicationFlow) -> str:
        """Return the label ``pod-template-hash`` of the newest drivers, or an empty string.

        The ReplicaSet with the highest revision is the newest, because ``kubectl rollout undo``
        makes an old ReplicaSet the newest. Raise errors as ``Client.list`` does.
        """
        labels = ",".join(f"{k}={v}" for k, v in driver_selector(flow.metadata.name).items())
        found = await self._client.list(
            REPLICA_SET, flow.metadata.namespace, labels=labels, metadata_only=True
        )
        newest = max(found, key=_revision, default=None)
        return newest["metadata"]["labels"].get(POD_TEMPLATE_HASH, "") if newest else ""

    async def verify(self, namespace: str, flow: str) -> None:
        """Read all children of a flow, because kopf misses deletions while its watch is closed."""
        for name in self._children(namespace, flow):
            object = await self._client.get(_KINDS[name[0]], namespace, name[2])
            applied = self._applied.get(name)  # ``observe`` may have been called
            if applied is not None and _our_fields(object) != applied.fields:
                self._applied.pop(name)

    def forget(self, namespace: str, flow: str) -> None:
        """Forget a deleted flow. Its children will also be deleted."""
        for name in self._children(namespace, flow):
            self._applied.pop(name)
        deployment = DEPLOYMENT.name, namespace, f"{flow}-driver"
        self._refused.pop(deployment, None)
        self._templates.pop(deployment, None)

    def _children(self, namespace: str, flow: str) -> list[ChildName]:
        """Return the names of the applied children of a flow."""
        applied = self._applied.items()
        return [name for name, one in applied if (name[1], one.flow) == (namespace, flow)]


def _revision(replica_set: Object) -> int:
    annotations = replica_set["metadata"].get("annotations") or {}
    return int(annotations.get("deployment.kubernetes.io/revision", 0))


def _refused_pods(object: Object) -> str:
    """Return the reason why a Deployment's pods are rejected, or an empty string.

    Examples are Pod Security, a quota or a webhook.
    """
    conditions = object.get("status", {}).get("conditions") or ()
    return next(
        (one.get("message", "") for one in conditions if one["type"] == "ReplicaFailure"), ""
    )


def _our_fields(object: Object | None) -> str:
    """Return the operator's fields of an object, as its managedFields list them."""
    metadata = {} if object is None else object["metadata"]
    entries = metadata.get("managedFields") or []
    ours = [
        entry.get("fieldsV1")
        for entry in entries
        if entry["manager"] == OPERATOR_MANAGER and entry["operation"] == "Apply"
    ]
    return json.dumps(ours, sort_keys=True)


def _digest(manifest: Object) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _child(flow: ReplicationFlow, kind: Kind) -> ChildName:
    return kind.name, flow.metadata.namespace, driver_name(flow)


def _name(object: Object) -> ChildName:
    metadata = object["metadata"]
    return object["kind"], metadata["namespace"], metadata["name"]
