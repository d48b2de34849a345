"""The only importer of ``kubernetes``.

``connect`` finds it, ``client`` has the verbs (on plain objects), ``requests`` sends each with a
time-out, ``errors`` says in words what it refuses, ``kinds`` knows where it serves what.
``reflector`` keeps a local copy of objects; ``lease`` keeps a Lease, ``lease_watch`` watches those
of others by the rules of ``lease_observer``, ``election`` chooses a leader by one. ``models`` turns
objects into our types, ``in_force`` says which spec of a flow counts, ``retry`` asks again.
``metrics`` counts requests.
"""

from headrace.k8s.client import Client
from headrace.k8s.connect import connect, connect_as_kubectl, connect_by_file
from headrace.k8s.election import LeaderElection, LeadershipLost
from headrace.k8s.errors import (
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    NotServed,
    Refused,
    Unavailable,
    Undeclared,
)
from headrace.k8s.in_force import InForce, read_in_force, salvage
from headrace.k8s.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    EVENT,
    FLOW,
    JOB,
    LEASE,
    MIRROR_TEST,
    NETWORK_POLICY,
    POD,
    POD_DISRUPTION_BUDGET,
    REPLICA_SET,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    TASK,
    Kind,
    Object,
    Objects,
    kind_of,
)
from headrace.k8s.lease import LeaseKeeper, micro_time, read_lease
from headrace.k8s.lease_observer import LeaseObserver, LeaseView
from headrace.k8s.lease_watch import LeaseWatch
from headrace.k8s.metrics import RequestMetrics
from headrace.k8s.models import is_owned, owner_reference, owns, parse
from headrace.k8s.reflector import Change, ChangeType, Reflector, is_older
from headrace.k8s.requests import ADMISSION_TIMEOUT_S
from headrace.k8s.retry import retried

__all__ = [
    "ADMISSION_TIMEOUT_S",
    "CONFIG_MAP",
    "DEPLOYMENT",
    "EVENT",
    "FLOW",
    "JOB",
    "LEASE",
    "MIRROR_TEST",
    "NETWORK_POLICY",
    "POD",
    "POD_DISRUPTION_BUDGET",
    "REPLICA_SET",
    "ROLE",
    "ROLE_BINDING",
    "SERVICE_ACCOUNT",
    "TASK",
    "Change",
    "ChangeType",
    "Client",
    "Conflict",
    "Expired",
    "Forbidden",
    "InForce",
    "Kind",
    "LeaderElection",
    "LeadershipLost",
    "LeaseKeeper",
    "LeaseObserver",
    "LeaseView",
    "LeaseWatch",
    "NotFound",
    "NotServed",
    "Object",
    "Objects",
    "Reflector",
    "Refused",
    "RequestMetrics",
    "Unavailable",
    "Undeclared",
    "connect",
    "connect_as_kubectl",
    "connect_by_file",
    "is_older",
    "is_owned",
    "kind_of",
    "micro_time",
    "owner_reference",
    "owns",
    "parse",
    "read_in_force",
    "read_lease",
    "retried",
    "salvage",
]
