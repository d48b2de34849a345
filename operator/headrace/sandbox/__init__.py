"""Real Kafka brokers on this machine.

``Sandbox.start(name, [ClusterPlan("east"), ClusterPlan("west", brokers=3)])`` gives clusters whose
brokers can be stopped, killed and started one by one, and ends them with its ``with`` block.
"""

from headrace.sandbox.broker import Broker
from headrace.sandbox.cluster import Cluster
from headrace.sandbox.disk import require_disk
from headrace.sandbox.mirror_maker import start_mirror_maker
from headrace.sandbox.plan import ClusterPlan
from headrace.sandbox.sandbox import Sandbox, sandboxes_home
from headrace.sandbox.security import USERNAME, Authority

__all__ = [
    "USERNAME",
    "Authority",
    "Broker",
    "Cluster",
    "ClusterPlan",
    "Sandbox",
    "require_disk",
    "sandboxes_home",
    "start_mirror_maker",
]
