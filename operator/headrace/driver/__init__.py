"""The process of a driver, which hosts a Worker for each flow.

``process`` is the driver of ``headrace run``. ``pod`` is that of Kubernetes, with
``driver_units``, the watches of its units, and ``metrics``, for Prometheus; it
needs the extra ``operator``.
"""

from headrace.driver.process import run_driver

__all__ = ["run_driver"]
