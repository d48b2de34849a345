"""Judges a flow by what its units report. Pure.

``facts`` is what the judgement rests on, ``checks`` decides whether the flow is ready, ``flow``
makes the status.
"""

from headrace.status.facts import FlowFacts, TakenTarget
from headrace.status.flow import flow_status, is_significant, status_without_units

__all__ = ["FlowFacts", "TakenTarget", "flow_status", "is_significant", "status_without_units"]
