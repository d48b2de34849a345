"""HTTP endpoints for probes or Prometheus.

``serving`` is the server. Import it only where it is used, because a driver of ``headrace run`` has
no server. ``metrics`` defines metrics of flows and tests, and computes them from statuses.
"""

from headrace.telemetry.metrics import (
    BUILD_INFO,
    FLOW_METRICS,
    TEST_METRICS,
    Described,
    Sample,
    ended_s,
    flow_samples,
    make_registry,
    test_samples,
)

__all__ = [
    "BUILD_INFO",
    "FLOW_METRICS",
    "TEST_METRICS",
    "Described",
    "Sample",
    "ended_s",
    "flow_samples",
    "make_registry",
    "test_samples",
]
