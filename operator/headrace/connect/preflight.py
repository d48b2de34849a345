"""What can be refused before anything starts."""

from headrace.api import ClusterSpec
from headrace.kafka import check_settings


def check_client(cluster: ClusterSpec) -> None:
    """Raise ``InvalidSpec`` for client settings that the client does not know; asks no broker."""
    check_settings(cluster)
