"""What a process answers over HTTP to probes, to Prometheus.

``serving`` is the server (import it where it is needed: a driver of ``headrace run`` has none),
``metrics`` describes what it serves, ``flows`` has the metrics that
operator and ``headrace run`` make of a flow's status.
"""

from headrace.telemetry.flows import FLOW_METRICS, Sample, flow_samples
from headrace.telemetry.metrics import BUILD_INFO, Described, make_registry

__all__ = [
    "BUILD_INFO",
    "FLOW_METRICS",
    "Described",
    "Sample",
    "flow_samples",
    "make_registry",
]
