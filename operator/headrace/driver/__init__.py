"""The process of a driver, which hosts a Worker for each flow.

``process`` is the driver of ``headrace run``. ``pod`` is the driver of Kubernetes and requires the
extra ``operator``. ``metrics`` is common to both.
"""

from headrace.driver.process import DriverSettings, collect_regularly, run_driver

__all__ = ["DriverSettings", "collect_regularly", "run_driver"]
