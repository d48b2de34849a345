"""``python -m e2e.rights``: prints granted and used permissions of the end-to-end tests."""

from cluster.audit import read_audit
from cluster.find import real_cluster
from cluster.real import Cluster
from e2e.stage import MIRROR_TESTS_MAY, OPERATORS, VALUES
from support.helm import render
from support.rights import UNUSED, Right, granted, table, used


def rights_table(cluster: Cluster) -> tuple[str, set[Right]]:
    """Return the table of all permissions, and those that neither a request nor a reason needs.

    Raises AssertionError if a reason is about a permission that nobody has.
    """
    rights = granted(render(*VALUES, MIRROR_TESTS_MAY, release=OPERATORS, namespace=OPERATORS))
    uses = used(read_audit(cluster.audit_log().splitlines()))
    assert UNUSED.keys() <= rights.keys()
    return table(rights, uses), rights.keys() - uses.keys() - UNUSED.keys()


if __name__ == "__main__":
    print(rights_table(real_cluster())[0])
