"""The process of ``headrace run``: a herder of local drivers.

``herder`` keeps units (``task_store``), starts drivers (``fleet``), has units placed
(``placement_loop``) and answers on the control socket (``verbs``).
"""

from headrace.standalone.fleet import driver_server
from headrace.standalone.herder import StandaloneHerder

__all__ = ["StandaloneHerder", "driver_server"]
