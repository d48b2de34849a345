"""Assignors by the name that a flow chooses (``spec.tasks.assignor``), made safe to ask.

``named`` finds them, ``decision`` is what comes of asking: an answer that was checked, or the
assignment in force and why. One of ours is called (``in_process``); a plug-in is asked in a process
that can be ended (``plug_in``; ``process`` is what runs there).
"""

from headrace.placement.assignors.decision import Decider, Decision
from headrace.placement.assignors.in_process import InProcess
from headrace.placement.assignors.named import check_assignor, known_assignors, open_assignor
from headrace.placement.assignors.plug_in import PlugIn

__all__ = [
    "Decider",
    "Decision",
    "InProcess",
    "PlugIn",
    "check_assignor",
    "known_assignors",
    "open_assignor",
]
