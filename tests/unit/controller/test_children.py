"""Children are applied if something differs, and never if another owner has them."""

import asyncio
from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

import pytest

from headrace.api import ReplicationFlow
from headrace.controller.children import Children
from headrace.controller.events import NameTaken
from headrace.controller.resources import build_children
from headrace.controller.resources.children import build_pod_disruption_budget
from headrace.errors import Retriable
from headrace.k8s import Client, Kind, Object


class Kept:
    """API server with one namespace that stores applied objects."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.writes = 0
        self.before_an_answer: Callable[[], Any] = lambda: None

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        self.before_an_answer()
        return self.objects.get(kind.name)

    async def apply(self, object: Object, *, manager: str) -> Object:
        self.writes += 1
        written = self.objects[object["kind"]] = deepcopy(object)
        written["metadata"]["resourceVersion"] = str(self.writes)
        return deepcopy(written)

    async def patch(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        self.writes += 1
        self.objects[kind.name]["metadata"] |= patch["metadata"]
        return self.objects[kind.name]


def flow(uid: str) -> ReplicationFlow:
    metadata: Any = {"name": "orders", "namespace": "shop", "uid": uid}
    return ReplicationFlow.model_validate(
        {
            "metadata": metadata,
            "spec": {
                "source": {"alias": "east", "bootstrapServers": "e:9092"},
                "target": {"alias": "west", "bootstrapServers": "w:9092"},
                "topics": {"include": [".*"]},
            },
        }
    )


def apply(children: Children, flow: ReplicationFlow) -> None:
    for manifest in build_children(flow, "image", network_policy=False):
        asyncio.run(children.apply(flow, manifest))


def build_budget(**spec: Any) -> Object:
    """Return the budget of a flow with another spec."""
    budget = build_pod_disruption_budget(flow("1"))
    return budget | {"spec": budget["spec"] | spec}


def owners(kept: Kept) -> set[str]:
    found = [one["metadata"]["ownerReferences"] for one in kept.objects.values()]
    return {owner["uid"] for references in found for owner in references}


def test_a_flow_made_again_waits_for_the_end_of_the_children_of_the_one_before() -> None:
    kept = Kept()
    children = Children(cast(Client, kept))
    apply(children, flow("old"))
    with pytest.raises(Retriable, match="of an earlier flow of this name is being deleted"):
        apply(children, flow("new"))
    assert owners(kept) == {"old"}
    kept.objects.clear()
    apply(children, flow("new"))
    assert owners(kept) == {"new"}
    writes = kept.writes
    apply(children, flow("new"))
    assert kept.writes == writes, "nothing changed"


def test_children_that_go_while_they_are_read_are_made_again() -> None:
    kept = Kept()
    children = Children(cast(Client, kept))
    apply(children, flow("old"))

    def collect_garbage() -> None:
        while kept.objects:
            _, gone = kept.objects.popitem()
            children.observe(gone, deleted=True)

    kept.before_an_answer = collect_garbage
    asyncio.run(children.verify("shop", "orders"))
    apply(children, flow("old"))
    assert "Deployment" in kept.objects


def test_an_object_of_somebody_else_is_left_alone() -> None:
    kept = Kept()
    kept.objects["Deployment"] = {"metadata": {"name": "orders-driver"}}
    with pytest.raises(NameTaken, match="Deployment orders-driver in namespace shop is there"):
        apply(Children(cast(Client, kept)), flow("new"))
    assert kept.objects["Deployment"] == {"metadata": {"name": "orders-driver"}}


def changed_budget(kept: Kept, version: int) -> Object:
    """Return the budget after a user has added a field to its spec."""
    budget = deepcopy(kept.objects["PodDisruptionBudget"])
    fields: Object = {"f:spec": {"f:minAvailable": {}}}
    entry = {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": fields}
    budget["metadata"] |= {"managedFields": [entry], "resourceVersion": str(version)}
    return budget


def test_watch_that_is_behind_reports_no_change() -> None:
    kept = Kept()
    children = Children(cast(Client, kept))
    apply(children, flow("1"))
    version = int(kept.objects["PodDisruptionBudget"]["metadata"]["resourceVersion"])
    assert not children.observe(changed_budget(kept, version - 1), deleted=False)
    assert children.observe(changed_budget(kept, version + 1), deleted=False)


def test_object_that_is_changed_again_waits_but_not_for_a_change_of_the_flow() -> None:
    kept = Kept()
    children = Children(cast(Client, kept))
    apply(children, flow("1"))

    def change() -> None:
        kept.objects["PodDisruptionBudget"] = changed_budget(kept, 100 + kept.writes)
        assert children.observe(kept.objects["PodDisruptionBudget"], deleted=False)

    change()
    assert children.due_s(flow("1")) == 0
    writes = kept.writes
    apply(children, flow("1"))
    assert kept.writes == writes + 2, "the fields are taken over, then applied"
    change()
    assert 0 < children.due_s(flow("1")) <= 1
    apply(children, flow("1"))
    assert kept.writes == writes + 2
    asyncio.run(children.apply(flow("1"), build_budget(maxUnavailable=5)))
    assert kept.writes == writes + 4
