"""The process of ``headrace run``: a herder of local drivers.

``herder`` stores the units (``task_store``), starts drivers (``fleet``), assigns units
(``placement_loop``) and answers on the control socket (``control_handlers``).
"""

from headrace.standalone.fleet import driver_server
from headrace.standalone.herder import StandaloneHerder

__all__ = ["StandaloneHerder", "driver_server"]
