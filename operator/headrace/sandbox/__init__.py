"""Real Kafka brokers on this machine.

``Sandbox.start(name, [ClusterPlan("east"), ClusterPlan("west", brokers=3)])`` starts clusters.
Their brokers can be stopped, killed and started one by one. They end with the ``with`` block.
"""

from headrace.sandbox.broker import BrokerProcess, SandboxCluster
from headrace.sandbox.broker_config import USERNAME, Authority
from headrace.sandbox.layout import ClusterPlan
from headrace.sandbox.mirror_maker import start_mirror_maker
from headrace.sandbox.sandbox import Sandbox, sandboxes_home

__all__ = [
    "USERNAME",
    "Authority",
    "BrokerProcess",
    "ClusterPlan",
    "Sandbox",
    "SandboxCluster",
    "sandboxes_home",
    "start_mirror_maker",
]
