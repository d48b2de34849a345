"""Judges a flow by what its units report. Pure.

``checks`` decides from the facts of a flow whether it is ready, and ``flow`` builds the status.
"""

from headrace.status.flow import flow_status, is_significant, status_without_units
from headrace.status.readiness import FlowFacts, TakenTarget

__all__ = ["FlowFacts", "TakenTarget", "flow_status", "is_significant", "status_without_units"]
