"""A topic of headrace's own on a cluster: made where it is absent, else checked."""

from collections.abc import Mapping

from headrace.errors import Fatal, Retriable
from headrace.kafka.admin import Admin


def ensure_topic(
    admin: Admin,
    topic: str,
    partitions: int,
    config: Mapping[str, str],
    *,
    because: str,
    consequence: str = "",
) -> bool:
    """Whether it was made now. One that somebody made before is used as it is, so that no right to
    create is needed.

    Raises what creating it raises, and ``Fatal`` for another number of partitions: ``because`` is
    why it must have this one, ``consequence`` what follows when it is deleted.
    """
    found = admin.describe([topic]).get(topic)
    if found is None:
        if admin.create_topic(topic, partitions, config=config):
            return True
        found = admin.describe([topic]).get(topic)
    where = f"topic {topic} on {admin.name}"
    if found is None:
        raise Retriable(f"{where} is being made by somebody else: trying again")
    if found.partitions != partitions:
        raise Fatal(
            f"{where} has {found.partitions} partitions, and must have {partitions}, {because}: "
            f"delete it, and it is created again{consequence}"
        )
    return False
