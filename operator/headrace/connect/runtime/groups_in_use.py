"""Groups that have members, and the topics that they read."""

from headrace.kafka import SHARE, Admin


def groups_in_use(admin: Admin) -> dict[str, frozenset[str]]:
    """Return the groups with members, and the topics of which each has offsets.

    Groups of all kinds and in all states count. Raises as reading the cluster does.
    """
    members = admin.groups_with_members()
    share = {group for group, kind in members.items() if kind == SHARE}
    committed, _ = admin.committed(members.keys() - share)
    found = {group: frozenset(at.topic for at in those) for group, those in committed.items()}
    if share:
        starts, _ = admin.share_starts(share)
        found |= {group: frozenset(at.topic for at in those) for group, those in starts.items()}
    return found
