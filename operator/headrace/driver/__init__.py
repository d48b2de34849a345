"""One driver process: hosts a Worker per flow, for as long as its herder wants it."""

from headrace.driver.process import run_driver

__all__ = ["run_driver"]
