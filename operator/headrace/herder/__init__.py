"""The Herder port implemented, for local processes and for Kubernetes.

``standalone`` coordinates local driver processes: ``store`` keeps the units, in the API server's
place; ``link`` is the driver's end of the line, ``control`` the socket by which people and tests
reach a running flow. ``kubernetes`` writes to ReplicationTask objects (``task_objects``), no more
often than ``status_writes`` says; ``target_topics`` finds flows that write one target topic.
"""

from headrace.herder.standalone import StandaloneHerder

__all__ = ["StandaloneHerder"]
