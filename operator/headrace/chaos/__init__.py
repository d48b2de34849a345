"""Carries out the faults that a MirrorTest asks for.

``chaos`` injects one after the other and times each recovery. The flow is behind the port of
``port``: ``local`` is a flow of ``headrace run``, ``pods`` one of a Kubernetes cluster. There
``signals`` gets a signal into a driver's pod, and ``process`` sends it; ``flow_snapshot`` decides
whether the flow has recovered. ``pause`` pauses a flow, here or there.
"""

from headrace.chaos.chaos import Chaos
from headrace.chaos.local import ACTIONS as LOCAL_ACTIONS
from headrace.chaos.local import LocalInjector, refused
from headrace.chaos.pause import PauseFaults, Since
from headrace.chaos.port import ByAction, FaultInjector, Injection

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
