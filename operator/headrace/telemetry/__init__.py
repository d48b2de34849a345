"""What a process answers over HTTP to probes, to Prometheus.

``serving`` is the server (import it where it is needed: a driver of ``headrace run`` has none),
``metrics`` describes what it serves, ``flows`` and ``mirror_tests`` have the metrics that are made
of a flow's and a test's status.
"""

from headrace.telemetry.flows import FLOW_METRICS, Sample, flow_samples
from headrace.telemetry.metrics import BUILD_INFO, Described, make_registry
from headrace.telemetry.mirror_tests import TEST_METRICS, ended_s, test_samples

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
