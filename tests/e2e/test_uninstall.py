"""Objects that a release leaves behind: definitions, with all flows, and the operators' Lease."""

from collections.abc import Callable

import pytest
from cluster.real import Cluster
from e2e.stage import OPERATORS, install_release
from support.helm import helm

KINDS = "deploy,rs,pods,sa,role,rolebinding,pdb,cm,secret,lease,netpol"
POLICIES = "validatingadmissionpolicy,validatingadmissionpolicybinding"
CLUSTER_WIDE = f"clusterrole,clusterrolebinding,flowschema,crd,{POLICIES}"
STAY = {"customresourcedefinition.apiextensions.k8s.io", "lease.coordination.k8s.io"}
OF_EVERY_NAMESPACE = {"serviceaccount/default", "configmap/kube-root-ca.crt"}


def objects(cluster: Cluster) -> set[str]:
    """Return all objects of the release's own namespace, and headrace's cluster-scoped ones."""
    here = cluster.kubectl("get", KINDS, "-n", OPERATORS, "-o", "name").split()
    everywhere = cluster.kubectl("get", CLUSTER_WIDE, "-o", "name").split()
    return {*here, *(name for name in everywhere if "headrace" in name)} - OF_EVERY_NAMESPACE


@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("images")
def test_only_definitions_and_the_lease_stay(
    cluster: Cluster, wait_until: Callable[..., object]
) -> None:
    install_release(cluster)
    helm(
        *("uninstall", OPERATORS, f"--namespace={OPERATORS}", "--wait"),
        kubeconfig=cluster.kubeconfig,
    )
    wait_until(lambda: objects(cluster), until=only_those)


def only_those(left: set[str]) -> bool:
    return {name.partition("/")[0] for name in left} == STAY
