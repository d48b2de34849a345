"""``python -m e2e.rights``: prints granted and used permissions of the end-to-end tests."""

from cluster.audit import read_audit
from cluster.find import real_cluster
from cluster.real import Cluster
from e2e.stage import MIRROR_TESTS_MAY, OPERATORS, VALUES
from support.helm import render
from support.rights import CHAOS, DRIVERS, OPERATOR, REHEARSAL, SPARK, Right, granted, table, used

UNUSED: dict[Right, str] = {
    Right(OPERATOR, "clusterroles.rbac.authorization.k8s.io", "bind"): (
        "checked when the operator creates a RoleBinding, and logged as that request"
    ),
    Right(OPERATOR, "jobs.batch", "delete"): (
        "ends the Jobs of a test that has a verdict, such as after a killed Spark driver (LONG=1)"
    ),
    Right(OPERATOR, "mirrortests.headrace.dev", "create"): "runs of a schedule",
    Right(OPERATOR, "mirrortests.headrace.dev", "delete"): "runs that leave the history",
    Right(OPERATOR, "networkpolicies.networking.k8s.io", "delete"): (
        "driver.networkPolicy was switched off"
    ),
    Right(OPERATOR, "pods", "delete"): "executors that a killed Spark driver left (LONG=1)",
    Right(OPERATOR, "replicasets.apps", "list"): (
        "finds the newest drivers after `kubectl rollout restart` of a driver Deployment"
    ),
    Right(OPERATOR, "replicationflows.headrace.dev", "patch"): (
        "resumes a flow that a killed chaos Job left paused"
    ),
    Right(
        DRIVERS, "replicationtasks.headrace.dev", "delete"
    ): "a flow with fewer tasks than before",
    Right(SPARK, "pods", "delete"): "Spark deletes executors that failed",
    Right(CHAOS, "deployments.apps/scale", "patch"): "step ScaleDeployment",
    Right(REHEARSAL, "replicationflows.headrace.dev", "get"): "rehearsals (LONG=1)",
    Right(REHEARSAL, "replicationflows.headrace.dev", "patch"): "rehearsals (LONG=1)",
    Right(REHEARSAL, "replicationtasks.headrace.dev", "list"): "rehearsals (LONG=1)",
}
"""Reasons for permissions that the end-to-end tests do not use."""


def rights_table(cluster: Cluster) -> tuple[str, set[Right]]:
    """Return the table of all permissions, and those that neither a request nor a reason needs.

    Raises AssertionError if a reason is about a permission that nobody has.
    """
    rights = granted(render(*VALUES, MIRROR_TESTS_MAY, release=OPERATORS, namespace=OPERATORS))
    uses = used(read_audit(cluster.audit_log().splitlines()))
    assert UNUSED.keys() <= rights.keys()
    return table(rights, uses, UNUSED), rights.keys() - uses.keys() - UNUSED.keys()


if __name__ == "__main__":
    print(rights_table(real_cluster())[0])
