"""Options of the operator."""

from dataclasses import dataclass

from headrace.controller.flow_children import FlowSettings
from headrace.controller.mirror_tests import TestSettings

OPERATOR_LEASE = "headrace-operator"
"""Default name of the Lease for the leader election."""


@dataclass(frozen=True)
class OperatorOptions:
    """Options of ``headrace operator``."""

    identity: str
    """Identity of this replica, which is the name of its pod."""
    namespaces: tuple[str, ...]
    """Namespaces whose flows are reconciled. Empty means all."""
    selector: str
    """Label selector of the flows and mirror tests to reconcile. Empty means all."""
    lease_namespace: str
    """Namespace of the Lease."""
    lease: str
    """Name of the Lease."""
    ip: str | None
    """Address of health checks and metrics, or None for all addresses."""
    port: int
    """Port of health checks and metrics."""
    flows: FlowSettings
    max_concurrent_rollouts: int
    """Maximum number of flows that replace their drivers at the same time. Zero means all."""
    tests: TestSettings | None
    """Settings of mirror tests.

    If None, tests are ignored and no permissions on them are needed.
    """
    retry_s: float = 3.0
    """Time before failed lists and ended watches begin again, in seconds."""

    @property
    def scopes(self) -> tuple[str | None, ...]:
        """Namespaces to serve. None means all."""
        return self.namespaces or (None,)
