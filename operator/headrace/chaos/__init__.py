"""Carries out the faults that a MirrorTest asks for.

``chaos`` does them one after the other and times each recovery. What breaks is behind the port of
``port``: ``local`` is a flow of ``headrace run``, ``pods`` one of a Kubernetes cluster. There
``signals`` gets a signal into a driver's pod, and ``process`` sends it.
"""

from headrace.chaos.chaos import Chaos
from headrace.chaos.local import LocalFlow, refused
from headrace.chaos.port import Breakable, Injection

__all__ = ["Breakable", "Chaos", "Injection", "LocalFlow", "refused"]
