"""Clusters that are not open to everybody, as manifests name them, and their Secrets as mounted."""

import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from support.patience import WITHIN_S

from headrace.api import ClusterAccess, ClusterSpec
from headrace.sandbox import USERNAME, SandboxCluster

Fields = dict[str, Any]

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Properties of a cluster with authorization; its plain listener allows all requests."""

CANARY = 'canary-7351 "quoted\\" $HOME; ü'
"""A password with all characters that break a carelessly quoted setting."""

PRINCIPALS = (f"User:{USERNAME}", f"User:CN={USERNAME}")
"""The user by password, and by certificate."""


def trusting(cluster: SandboxCluster) -> Fields:
    """Return a ``tls`` field that trusts the cluster's authority."""
    return {"trustedCertificates": [{"secretName": f"{cluster.name}-ca", "key": "ca.crt"}]}


def by_password(cluster: SandboxCluster, type: str = "ScramSha512") -> Fields:
    """Return the cluster's fields in a manifest, with SASL over TLS."""
    return {
        "alias": cluster.name,
        "bootstrapServers": cluster.sasl_servers,
        "tls": trusting(cluster),
        "authentication": {
            "type": type,
            "username": USERNAME,
            "password": {"secretName": f"{cluster.name}-user", "key": "password"},
        },
    }


def by_certificate(cluster: SandboxCluster) -> Fields:
    """Return the cluster's fields in a manifest, with a client certificate."""
    own = {"clientCertificate": {"secretName": f"{cluster.name}-client"}}
    return {
        "alias": cluster.name,
        "bootstrapServers": cluster.tls_servers,
        "tls": trusting(cluster) | own,
    }


def access(fields: Fields, secrets: Path) -> ClusterAccess:
    """Return the access that headrace's clients receive."""
    return ClusterAccess(ClusterSpec.model_validate(fields), "spec.source", secrets)


class Mounted:
    """A folder of Secrets that changes as a kubelet changes it: ``..data`` is swapped."""

    def __init__(self, folder: Path, *copied: Path) -> None:
        """Create the folder of Secrets with the Secrets of the folders ``copied``."""
        self.folder = folder
        folder.mkdir()
        for secret in (secret for home in copied for secret in home.iterdir()):
            self.write(secret.name, {file.name: file.read_bytes() for file in secret.iterdir()})

    def write(self, name: str, content: dict[str, bytes]) -> None:
        """Mount a Secret, or change it, all keys at once."""
        volume = self.folder / name
        volume.mkdir(exist_ok=True)
        new = volume / f"..{len(list(volume.iterdir()))}"
        new.mkdir()
        for key, value in content.items():
            (new / key).write_bytes(value)
            if not (volume / key).is_symlink():
                (volume / key).symlink_to(Path("..data") / key)
        swap = volume / "..data_tmp"
        swap.symlink_to(new.name)
        swap.replace(volume / "..data")

    def take(self, name: str) -> None:
        """Unmount a Secret."""
        shutil.rmtree(self.folder / name)

    def password(self, cluster: SandboxCluster) -> str:
        """Return a cluster's password."""
        return (self.folder / f"{cluster.name}-user" / "password").read_text()


def grant(
    cluster: SandboxCluster,
    name: str,
    *operations: str,
    on: str = "topic",
    to: Iterable[str] = PRINCIPALS,
) -> None:
    """Allow the user an operation on a topic or group, or on all that begin with ``prefix*``.

    Wait until a broker lists the permissions: brokers apply them after they answer the request.
    """
    prefix = name.endswith("*") and name != "*"
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    name = name[:-1] if prefix else name
    rights = [
        AclBinding(
            ResourceType[on.upper()],
            name,
            pattern,
            principal,
            "*",
            AclOperation[operation.upper()],
            AclPermissionType.ALLOW,
        )
        for principal in to
        for operation in operations
    ]
    add_acls(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}), *rights)


def add_acls(admin: AdminClient, *acls: AclBinding) -> None:
    """Add ACLs to a cluster of one broker, and wait until the broker applies them."""
    for future in admin.create_acls(list(acls)).values():
        future.result(WITHIN_S)
    for acl in acls:
        _await_acl(admin, acl, applied=True)


def remove_acls(admin: AdminClient, *acls: AclBinding) -> None:
    """Remove ACLs of a cluster of one broker, and wait until the broker does not apply them."""
    for future in admin.delete_acls(list(map(_exactly, acls))).values():
        future.result(WITHIN_S)
    for acl in acls:
        _await_acl(admin, acl, applied=False)


def _await_acl(admin: AdminClient, acl: AclBinding, *, applied: bool) -> None:
    """Wait for the broker, whose authorizer learns of a change after the controller's answer."""
    until_s = time.monotonic() + WITHIN_S
    while bool(admin.describe_acls(_exactly(acl)).result(WITHIN_S)) is not applied:
        assert time.monotonic() < until_s, f"the broker does not follow a change of {acl}"
        time.sleep(0.02)


def _exactly(acl: AclBinding) -> AclBindingFilter:
    """Return a filter that only this ACL passes."""
    return AclBindingFilter(
        acl.restype,
        acl.name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def change_password(cluster: SandboxCluster, password: str) -> None:
    """Give the user of a cluster another SCRAM-SHA-512 password; connections stay."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USERNAME, info, password.encode())
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(WITHIN_S)


def command_lines() -> str:
    """Return the command line and the environment of every process that this user may read."""
    seen = []
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                seen.append((process / name).read_text(errors="replace"))
            except OSError:
                continue  # it has ended, or is another user's
    assert sys.executable in "\n".join(seen), "not even our own"
    return "\n".join(seen)
