"""One driver process: hosts a Worker per flow, for as long as its herder wants it.

``process`` is the driver of ``headrace run``. ``pod`` is that of Kubernetes, with ``units``, the
watches of what concerns it, and ``metrics``, for Prometheus; it needs the extra ``operator``.
"""

from headrace.driver.process import run_driver

__all__ = ["run_driver"]
