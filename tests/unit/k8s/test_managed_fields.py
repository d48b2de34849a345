"""Owners of fields, on an object as the API server returns it."""

from typing import Any

from headrace.k8s.managed_fields import (
    Fields,
    applied_fields,
    extract,
    foreign_fields,
    owners,
    take_over,
)

DRIVER, SIDECAR = 'k:{"name":"driver"}', 'k:{"name":"sidecar"}'


def template(containers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    made: Fields = {"f:spec": {"f:containers": containers}}
    if metadata:
        made["f:metadata"] = {"f:annotations": {".": {}} | metadata}
    return {"f:spec": {"f:template": made}}


def entry(manager: str, fields: dict[str, Any], operation: str = "Update") -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields}  # fmt: skip


def deployment(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "metadata": {"managedFields": list(entries)}}


OURS = entry("ours", template({DRIVER: {".": {}, "f:image": {}}}), "Apply")


def test_fields_of_the_spec_that_others_own_are_foreign() -> None:
    added: Fields = {DRIVER: {"f:image": {}, "f:args": {}}}
    status = entry("controller", {"f:status": {"f:replicas": {}}})
    found = foreign_fields(deployment(OURS, entry("kubectl", template(added)), status), "ours")
    assert found == {"kubectl": template({DRIVER: {"f:args": {}}})}


def test_restart_by_kubectl_is_not_foreign() -> None:
    restart: Fields = {"f:kubectl.kubernetes.io/restartedAt": {}}
    there = deployment(OURS, entry("kubectl", template({}, **restart)))
    assert foreign_fields(there, "ours") == {}
    both = deployment(OURS, entry("kubectl", template({}, **restart, **{"f:look": {}})))
    look: Fields = {"f:spec": {"f:template": {"f:metadata": {"f:annotations": {"f:look": {}}}}}}
    assert foreign_fields(both, "ours") == {"kubectl": look}


def test_operator_takes_over_whole_items_and_leaves_other_fields() -> None:
    labels: Fields = {"f:metadata": {"f:labels": {"f:team": {}}}}
    kubectl = entry("kubectl", labels | template({SIDECAR: {"f:image": {}}}))
    taken = take_over(deployment(OURS, kubectl), "ours")
    made: Fields = {DRIVER: {".": {}, "f:image": {}}, SIDECAR: {".": {}, "f:image": {}}}
    assert taken == [entry("ours", template(made), "Apply"), entry("kubectl", labels)]


def test_operator_takes_over_an_object_of_which_it_owns_nothing() -> None:
    taken = take_over(deployment(entry("restore", template({DRIVER: {".": {}}}))), "ours")
    assert taken == [entry("ours", template({DRIVER: {".": {}}}), "Apply")]


def test_owners_of_fields_are_named() -> None:
    there = deployment(OURS, entry("kubectl", template({DRIVER: {"f:args": {}}})))
    assert owners(there, template({DRIVER: {"f:args": {}, "f:env": {}}})) == ["kubectl"]
    assert owners(there, template({DRIVER: {"f:env": {}}})) == []


def test_owned_part_of_an_object_is_extracted() -> None:
    containers = [{"name": "driver", "image": "a", "args": ["b"]}, {"name": "sidecar"}]
    spec = {"template": {"spec": {"containers": containers, "nodeSelector": {"a": "b"}}}}
    fields = applied_fields(deployment(OURS), "ours")["f:spec"]
    driver = {"image": "a"}
    assert extract(spec, fields) == {"template": {"spec": {"containers": [driver]}}}
    assert extract({"finalizers": ["a", "b"]}, {"f:finalizers": {'v:"a"': {}}}) == {
        "finalizers": ["a"]
    }
