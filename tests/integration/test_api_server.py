"""The API server that the tests of the operator use."""

from collections.abc import Callable

import pytest
from cluster.api_server import ApiServer, OwnApiServer
from cluster.kubectl import KubectlError
from support.records import unique


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def test_objects_outlive_the_api_server(own_api_server: OwnApiServer, namespace: str) -> None:
    own_api_server.apply(config_map("kept"), namespace=namespace)
    own_api_server.stop()
    with pytest.raises(KubectlError, match="refused"):
        own_api_server.get("-n", namespace, "configmap", "kept")
    own_api_server.start()
    assert own_api_server.get("-n", namespace, "configmap", "kept")["kind"] == "ConfigMap"


def test_objects_outlive_the_store(own_api_server: OwnApiServer, namespace: str) -> None:
    own_api_server.apply(config_map("kept"), namespace=namespace)
    own_api_server.etcd.kill()
    own_api_server.etcd.start()
    own_api_server.server.wait_until_ready()
    assert own_api_server.get("-n", namespace, "configmap", "kept")["kind"] == "ConfigMap"


def test_a_frozen_api_server_hangs_until_it_is_thawed(
    own_api_server: OwnApiServer, namespace: str
) -> None:
    own_api_server.freeze()
    with pytest.raises(KubectlError, match=r"(?i)timeout|deadline exceeded"):
        own_api_server.kubectl("get", "namespaces", "--request-timeout=1s")
    own_api_server.thaw()
    assert own_api_server.get("namespace", namespace)


def test_a_service_account_has_the_rights_of_its_role_and_no_others(
    api_server: ApiServer, namespace: str, wait_until: Callable[..., object]
) -> None:
    role = ("role", "reader", "--verb=get", "--resource=configmaps")
    api_server.kubectl("-n", namespace, "create", *role)
    bound = ("--role=reader", f"--serviceaccount={namespace}:default")
    api_server.kubectl("-n", namespace, "create", "rolebinding", "reader", *bound)
    root = "configmap/kube-root-ca.crt"
    api_server.kubectl("-n", namespace, "wait", "--for=create", root, "--timeout=300s")
    me = ("--kubeconfig", str(api_server.kubeconfig_of(namespace, "default")))
    wait_until(lambda: api_server.kubectl(*me, "get", root))  # a permission takes effect late
    with pytest.raises(KubectlError, match='cannot list resource "secrets"'):
        api_server.kubectl(*me, "get", "secrets")


def test_what_an_object_owns_goes_with_it(api_server: ApiServer, namespace: str) -> None:
    api_server.apply(config_map("owner"), namespace=namespace)
    owner = api_server.get("-n", namespace, "configmap", "owner")["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    owned = config_map("owned")
    owned["metadata"] = {"name": "owned", "ownerReferences": [reference]}
    api_server.apply(owned, namespace=namespace)
    api_server.kubectl("-n", namespace, "delete", "configmap", "owner")
    api_server.kubectl("-n", namespace, "wait", "--for=delete", "configmap/owned", "--timeout=300s")


def test_a_namespace_goes_with_all_that_is_in_it(api_server: ApiServer) -> None:
    name = unique("short-lived")
    api_server.kubectl("create", "namespace", name)
    api_server.apply(config_map("inside"), namespace=name)
    api_server.kubectl("delete", "namespace", name, "--timeout=300s")
    with pytest.raises(KubectlError, match="not found"):
        api_server.get("namespace", name)
