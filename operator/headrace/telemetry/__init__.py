"""HTTP endpoints of a process, for probes or Prometheus.

``serving`` is the server. Import it only where it is used: a driver of ``headrace run`` has none.
``metrics`` describes the metrics, and computes metrics of flows and tests from their statuses.
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
