"""What can be refused before anything starts."""

from headrace.api import ReplicationFlow
from headrace.kafka import check_settings


def check_clients(flow: ReplicationFlow) -> None:
    """Raise ``InvalidSpec`` for client settings that the client does not know; asks no broker."""
    for cluster in (flow.spec.source, flow.spec.target):
        check_settings(cluster)
