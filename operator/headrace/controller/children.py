"""Creates, changes and deletes the objects that flows and tests own."""

import hashlib
import json
from dataclasses import dataclass, replace

from headrace.api import OPERATOR_MANAGER, MirrorTest, ReplicationFlow, ReplicationTask
from headrace.controller.contested_objects import Contests
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
    TASK,
    Client,
    Conflict,
    Kind,
    Object,
    kind_of,
    owns,
)
from headrace.k8s.managed_fields import (
    Fields,
    applied_fields,
    extract,
    foreign_fields,
    missing_fields,
    owners,
    take_over,
)
from headrace.logs import get_logger

log = get_logger(__name__)

Owner = ReplicationFlow | MirrorTest

_CALLED = {"ReplicationFlow": "flow", "MirrorTest": "test"}


async def check_name(client: Client, owner: Owner, manifest: Object) -> Object | None:
    """Check that no other owner has an object of that name, and return this owner's object, if any.

    Applying a manifest to another owner's object would take over some of its fields.

    Raises:
        NameTaken: Another owner has an object of that name.
        Retriable: The object of an earlier flow or test with the same name is being deleted.
    """
    metadata = manifest["metadata"]
    there = await client.get(kind_of(manifest), metadata["namespace"], metadata["name"])
    if there is None or owns(owner, there):
        return there
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

    If a flow is deleted and created again, children of the deleted flow may still exist.
    """
    flow: str
    """Name of the owning flow."""
    digest: str
    """Digest of the manifest."""
    fields: str
    """Fields of the object that the API server recorded as the operator's."""
    version: int = 0
    """The object's version."""
    changed: bool = False
    """True if another manager has changed or deleted the object since it was applied."""


@dataclass(frozen=True)
class DeploymentState:
    """State of a flow's Deployment, from its watch."""

    template: Object | None = None
    """Operator's part of the pod template."""
    refused_pods: str = ""
    """The API server's reason for rejecting driver pods, or empty."""
    overdue: str = ""
    """Message if the roll-out makes no progress within the Deployment's deadline, or empty."""


@dataclass(frozen=True)
class ContestedChild:
    """A child that other managers change again and again."""

    name: str
    """Kind and name."""
    managers: list[str]
    """Field managers that change it, or none if they are unknown."""


class Children:
    """Writes the manifests of all flows' children. Use it from one event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._applied: dict[ChildName, _Applied] = {}
        self._contests = Contests[ChildName]()
        self._deployments: dict[ChildName, DeploymentState] = {}

    async def apply(self, flow: ReplicationFlow, manifest: Object) -> None:
        """Apply a child's manifest unless the child is up to date.

        Fields that other managers added to its spec are deleted. If they are added again and again,
        they stay for a while. Raise ``NameTaken`` if the child belongs to another owner, and the
        errors of ``Client.apply``.
        """
        name, wanted, owner = _name(manifest), _digest(manifest), flow.metadata.uid
        applied = self._applied.get(name)
        same = applied is not None and (applied.owner, applied.digest) == (owner, wanted)
        waits = applied is not None and applied.changed and self._contests.wait_s(name) > 0
        if applied is not None and same and (waits or not applied.changed):
            return
        if applied is None or applied.changed or applied.owner != owner:
            await self._take_over(name, await check_name(self._client, flow, manifest))
        written = await self._client.apply(manifest, manager=OPERATOR_MANAGER)
        self._applied[name] = _Applied(
            owner, flow.metadata.name, wanted, _our_fields(written), _version(written)
        )
        if name[0] == DEPLOYMENT.name:
            self._deployments[name] = _deployment_state(written, _our_template(written))
        self._record_change(name, written)  # a change after the child was read

    async def _take_over(self, name: ChildName, existing: Object | None) -> None:
        """Make the operator the owner of foreign fields. Its next apply deletes them."""
        while existing is not None and (foreign := foreign_fields(existing, OPERATOR_MANAGER)):
            metadata = {
                "resourceVersion": existing["metadata"]["resourceVersion"],
                "managedFields": take_over(existing, OPERATOR_MANAGER),
            }
            try:
                await self._client.patch(_KINDS[name[0]], *name[1:], {"metadata": metadata})
            except Conflict:  # a controller has written its status
                existing = await self._client.get(_KINDS[name[0]], *name[1:])
                continue
            managers = ", ".join(sorted(foreign))
            log.info("deletes fields of others", kind=name[0], name=name[2], managers=managers)
            return

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

    async def delete(self, unit: ReplicationTask) -> None:
        """Delete a unit that its flow no longer requires. Raise the errors of ``Client.delete``."""
        await self._client.delete(TASK, unit.metadata.namespace, unit.metadata.name)

    def observe(self, object: Object, *, deleted: bool) -> bool:
        """Record a child from its watch, and return True if its flow must be reconciled.

        The reconcile applies a child that was deleted or that another manager changed.
        """
        name = _name(object)
        before = self._deployments.pop(name, None)
        if name[0] == DEPLOYMENT.name and not deleted:
            # A template that another manager has changed must not be applied.
            template = (before and before.template) or _our_template(object)
            self._deployments[name] = _deployment_state(object, template)
        reported = self._deployments.get(name) != before
        applied = self._applied.get(name)
        if applied is not None and _version(object) < applied.version:
            return reported  # the watch is behind
        changed = self._record_change(name, None if deleted else object)
        return deleted or changed or reported

    def _record_change(self, name: ChildName, object: Object | None) -> bool:
        """Record a change since the last apply, and return True if there is one.

        ``object`` is the current object, or None if it was deleted.
        """
        applied = self._applied.get(name)
        if applied is None or applied.changed:
            return False
        managers: set[str] = set()
        if object is None:
            if not applied.digest:
                return False  # the operator has deleted it
        else:
            foreign = foreign_fields(object, OPERATOR_MANAGER) if applied.digest else {}
            ours = applied_fields(object, OPERATOR_MANAGER)
            before: Fields = json.loads(applied.fields)
            if ours == before and not foreign:
                return False
            managers = {*foreign, *owners(object, missing_fields(before, ours))}
        self._applied[name] = replace(applied, changed=True)
        self._contests.changed(name, managers)
        return True

    def contested(self, flow: ReplicationFlow) -> list[ContestedChild]:
        """Return a flow's children that other managers change again and again."""
        return [
            ContestedChild(f"{name[0]} {name[2]}", managers)
            for name in self._children(flow.metadata.namespace, flow.metadata.name)
            if (managers := self._contests.managers(name)) is not None
        ]

    def due_s(self, flow: ReplicationFlow) -> float:
        """Return the seconds until a child may be reverted, or until old changes are forgotten."""
        names = self._children(flow.metadata.namespace, flow.metadata.name)
        return min(map(self._due_s, names), default=float("inf"))

    def _due_s(self, name: ChildName) -> float:
        applied = self._applied.get(name)
        if applied is not None and applied.changed:
            return self._contests.wait_s(name)
        return self._contests.calm_s(name)

    def deployment(self, flow: ReplicationFlow) -> DeploymentState:
        """Return the state of a flow's Deployment. It is empty if the Deployment is unknown."""
        return self._deployments.get(_child(flow, DEPLOYMENT), DeploymentState())

    async def newest_replica_set(self, flow: ReplicationFlow) -> str:
        """Return the label ``pod-template-hash`` of the newest drivers, or an empty string.

        The newest drivers belong to the ReplicaSet with the highest revision. That is not always
        the ReplicaSet that was created last, because ``kubectl rollout undo`` gives an old one the
        highest revision. Raise errors as ``Client.list`` does.
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
            self._record_change(name, await self._client.get(_KINDS[name[0]], *name[1:]))

    def forget(self, namespace: str, flow: str) -> None:
        """Forget a deleted flow. Its children will also be deleted."""
        for name in self._children(namespace, flow):
            self._applied.pop(name)
            self._contests.forget(name)
        self._deployments.pop((DEPLOYMENT.name, namespace, f"{flow}-driver"), None)

    def _children(self, namespace: str, flow: str) -> list[ChildName]:
        """Return the names of the applied children of a flow."""
        applied = self._applied.items()
        return [name for name, one in applied if (name[1], one.flow) == (namespace, flow)]


def _revision(replica_set: Object) -> int:
    annotations = replica_set["metadata"].get("annotations") or {}
    return int(annotations.get("deployment.kubernetes.io/revision", 0))


def _deployment_state(deployment: Object, template: Object) -> DeploymentState:
    """Return the state of a Deployment. ``template`` is the operator's part of its template.

    The state contains the error if the API server rejects the pods, for example because of Pod
    Security, a quota or a webhook.
    """
    conditions = {one["type"]: one for one in deployment.get("status", {}).get("conditions") or ()}
    progress = conditions.get("Progressing", {})
    return DeploymentState(
        template,
        conditions.get("ReplicaFailure", {}).get("message", ""),
        progress.get("message", "") if progress.get("status") == "False" else "",
    )


def _our_template(deployment: Object) -> Object:
    """Return the operator's part of the pod template, or all of it if nothing is recorded."""
    fields = applied_fields(deployment, OPERATOR_MANAGER)
    for part in ("f:spec", "f:template"):
        fields = fields.get(part, {})
    ours: Object = extract(deployment["spec"]["template"], fields)
    return ours


def _our_fields(object: Object | None) -> str:
    return json.dumps(applied_fields(object, OPERATOR_MANAGER), sort_keys=True)


def _version(object: Object) -> int:
    return int(object["metadata"].get("resourceVersion") or 0)


def _digest(manifest: Object) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _child(flow: ReplicationFlow, kind: Kind) -> ChildName:
    return kind.name, flow.metadata.namespace, driver_name(flow)


def _name(object: Object) -> ChildName:
    metadata = object["metadata"]
    return object["kind"], metadata["namespace"], metadata["name"]
