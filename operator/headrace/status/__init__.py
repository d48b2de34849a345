"""Computes the status of a flow from the statuses of its units. Has no I/O.

``readiness`` decides whether a flow is ready, and ``flow`` builds the whole status.
"""

from headrace.status.flow import flow_status, is_significant, status_without_units
from headrace.status.readiness import FlowFacts, TakenTarget

__all__ = ["FlowFacts", "TakenTarget", "flow_status", "is_significant", "status_without_units"]
