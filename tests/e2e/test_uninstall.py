"""What a release leaves behind: its definitions, with all flows, and nothing else."""

import pytest
from cluster.real import Cluster
from e2e.stage import OPERATORS, install_release
from support.helm import helm

KINDS = "deploy,pods,sa,role,rolebinding,pdb,cm,secret,lease,netpol"
CLUSTER_WIDE = "clusterrole,clusterrolebinding,flowschema,crd"
DEFINITION = "customresourcedefinition.apiextensions.k8s.io"
OF_EVERY_NAMESPACE = {"serviceaccount/default", "configmap/kube-root-ca.crt"}


def objects(cluster: Cluster) -> set[str]:
    """All there are in the release's namespace, and of the whole cluster."""
    here = cluster.kubectl("get", KINDS, "-n", OPERATORS, "-o", "name").split()
    return {*here, *cluster.kubectl("get", CLUSTER_WIDE, "-o", "name").split()}


@pytest.mark.usefixtures("images")
def test_only_definitions_stay(cluster: Cluster) -> None:
    before = objects(cluster)
    install_release(cluster)
    helm(
        *("uninstall", OPERATORS, f"--namespace={OPERATORS}", "--wait"),
        kubeconfig=cluster.kubeconfig,
    )
    left = objects(cluster) - before - OF_EVERY_NAMESPACE
    assert {name.partition("/")[0] for name in left} <= {DEFINITION}
