"""Injects the faults that a MirrorTest requests.

``chaos`` injects one fault after the other and measures each recovery. ``local`` injects faults
into a flow of ``headrace run``, and ``pods`` into a flow of a Kubernetes cluster.
"""

from headrace.chaos.chaos import ByAction, Chaos, FaultInjector, Injection, PauseFaults, Since
from headrace.chaos.local import LOCAL_ACTIONS, LocalInjector, refused

__all__ = [
    "LOCAL_ACTIONS",
    "ByAction",
    "Chaos",
    "FaultInjector",
    "Injection",
    "LocalInjector",
    "PauseFaults",
    "Since",
    "refused",
]
