"""The process of a driver, which runs a Worker for each flow.

``process`` is the driver of ``headrace run``. ``pod`` is the driver on Kubernetes, which requires
the extra ``operator``. Both use ``metrics``.
"""

from headrace.driver.process import DriverSettings, collect_regularly, run_driver

__all__ = ["DriverSettings", "collect_regularly", "run_driver"]
