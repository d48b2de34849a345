"""The operator uses its permissions, as the audit log of the API server shows.

``e2e/test_rights.py`` does it for all components. No pod runs here.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.api_server import ApiServer
from support.helm import render
from support.manifests import flow, mirror_test, mirror_test_of_another
from support.operators import Resources, give_rights, running_operator
from support.rights import OPERATOR, UNUSED, Right, granted, used


def test_operator_uses_its_permissions_or_they_have_a_reason(
    api_server: ApiServer, resources: Resources, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    namespace = resources.namespace
    chart = granted(render())
    rights = {right for right in chart if right.component == OPERATOR}

    def needless() -> set[Right]:
        return rights - used(api_server.audit(namespace)).keys() - UNUSED.keys()

    give_rights(api_server, namespace)
    with running_operator(api_server, namespace, tmp_path, network_policy=True):
        resources.apply(flow("orders"))
        resources.apply(mirror_test("of-flow"), mirror_test_of_another("of-another"))
        wait_until(needless, until=lambda left: not left)
