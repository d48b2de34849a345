"""The process of a driver, which hosts a Worker for each flow.

``process`` is the driver of ``headrace run``. ``pod`` is that of Kubernetes, with
``driver_units``, the watches of its units; it needs the extra ``operator``. ``metrics`` is what
both measure.
"""

from headrace.driver.garbage import collect_regularly
from headrace.driver.process import DriverSettings, run_driver

__all__ = ["DriverSettings", "collect_regularly", "run_driver"]
