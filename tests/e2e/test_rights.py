"""Each granted permission is used, or stands in a list with its reason.

It is the last test of a session, because it reads what the other tests caused. A session that
selects some of them also counts requests of earlier sessions in the same cluster.
"""

from cluster.real import Cluster
from e2e.rights import rights_table


def test_each_granted_permission_is_used_or_has_a_reason(cluster: Cluster) -> None:
    printed, needless = rights_table(cluster)
    print(printed)
    assert not needless, "no test needs it: narrow the rules of the chart, or add the reason"
