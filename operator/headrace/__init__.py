"""headrace: Kafka replication flows and mirror tests, on one machine and on Kubernetes."""

from importlib.metadata import version

__version__ = version("headrace")
