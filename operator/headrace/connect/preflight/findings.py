"""What was found out about what a flow needs: one line each, with what corrects it."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from shlex import quote

from headrace.api import ClusterAccess
from headrace.api.flow import Location
from headrace.connect.preflight.needed_rights import Need, Resource
from headrace.kafka import principal_of

_MOST_NAMED = 3


class Outcome(StrEnum):
    """Of one check."""

    OK = "ok"
    WARNING = "warning"
    """The flow carries out its spec, but not under all circumstances."""
    MISSING = "missing"
    """The flow cannot do some of what its spec asks."""


@dataclass(frozen=True)
class Acl:
    """Allows ``principal`` ``operation`` on resources."""

    principal: str
    resource: Resource
    names: tuple[str, ...]
    operation: str
    prefixed: bool
    """Whether of all that begin with the one name."""


@dataclass(frozen=True)
class Finding:
    """Of one check."""

    side: Location | None
    """The cluster; ``None``: both."""
    subject: str
    """``topic orders``; or ``connection``, ``version`` of a cluster."""
    what: str
    """The operation or the setting."""
    outcome: Outcome
    message: str = ""
    """A sentence; "" where there is nothing to say."""
    acl: Acl | None = None
    """What is to be granted."""
    command: str = ""
    """Corrects it, where one command does."""

    @property
    def sentence(self) -> str:
        """For a condition."""
        where = f"{self.side.lower()} " if self.side else ""
        return f"{where}{self.subject}: {self.what}: {self.message}"


def named(kind: str, names: Collection[str]) -> str:
    """``topics a, b, c and 4 more``."""
    shown = ", ".join(sorted(names)[:_MOST_NAMED])
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{kind}{'s' if len(names) > 1 else ''} {shown}{more}"


def missing_right(need: Need, lacking: Collection[str], cluster: ClusterAccess) -> Finding:
    """The principal may not do it on these resources."""
    names = (need.prefix,) if need.prefix else tuple(sorted(lacking))
    principal = principal_of(cluster)
    operation = need.operation.value
    acl = Acl(principal, need.resource, names, operation, bool(need.prefix))
    return Finding(
        need.side,
        named(need.resource.replace("-", " "), lacking),
        operation,
        Outcome.WARNING if need.optional else Outcome.MISSING,
        f"{principal} may not; needed to {need.purpose}",
        acl,
        _grant(acl, cluster),
    )


def set_topic_command(cluster: ClusterAccess, topic: str, setting: str, value: str) -> str:
    """Set one setting of a topic."""
    arguments = ["--alter", "--entity-type", "topics", "--entity-name", topic]
    return _command("kafka-configs.sh", cluster, *arguments, "--add-config", f"{setting}={value}")


def _grant(acl: Acl, cluster: ClusterAccess) -> str:
    arguments = ["--add", "--allow-principal", acl.principal, "--operation", acl.operation]
    for name in acl.names:
        arguments += (
            ["--cluster"] if acl.resource is Resource.CLUSTER else [f"--{acl.resource}", name]
        )
    if acl.prefixed:
        arguments += ["--resource-pattern-type", "prefixed"]
    return _command("kafka-acls.sh", cluster, *arguments)


def _command(script: str, cluster: ClusterAccess, *arguments: str) -> str:
    servers = cluster.bootstrap_servers.replace(" ", "")
    locked = cluster.spec.tls is not None or cluster.spec.authentication is not None
    login = ["--command-config", "admin.properties"] if locked else []
    words = [script, "--bootstrap-server", servers, *login, *arguments]
    return " ".join(map(quote, words))
