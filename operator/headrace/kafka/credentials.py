"""Passwords and certificates, read from the folder of Secrets."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields

from headrace.api import ClusterAccess, SecretUse
from headrace.kafka.errors import SecretMissing


@dataclass(frozen=True, repr=False)
class Credentials:
    """What opens a cluster; empty where it is not asked for. Never to be logged or stored."""

    trusted: str = ""
    """Certificate authorities, PEM, one after the other."""
    certificate: str = ""
    """The client's own certificate chain, PEM."""
    private_key: str = ""
    """Its private key, PEM."""
    username: str = ""
    password: str = ""
    client_secret: str = ""
    """The client's own at the token endpoint."""
    token_trusted: str = ""
    """Certificate authorities of the token endpoint, PEM."""

    @property
    def digest(self) -> str:
        """Distinguishes one state of the files from another, and nothing else."""
        content = (getattr(self, field.name).encode() for field in fields(self))
        parts = (hashlib.sha256(part).digest() for part in content)
        return hashlib.sha256(b"".join(parts)).hexdigest()


def read_credentials(cluster: ClusterAccess) -> Credentials:
    """Read the files as they are now; ``SecretMissing`` names the Secret, the key and the field."""
    found = {use.field: _read(cluster, use) for use in cluster.spec.uses()}
    login = cluster.spec.authentication
    return Credentials(
        trusted=_joined(found, "tls.trustedCertificates"),
        certificate=found.get("tls.clientCertificate.certificateKey", ""),
        private_key=found.get("tls.clientCertificate.privateKeyKey", ""),
        # An editor or `echo` ends the line; no user name and no password does.
        username=(login and login.username)
        or found.get("authentication.usernameFrom", "").rstrip("\r\n"),
        password=found.get("authentication.password", "").rstrip("\r\n"),
        client_secret=found.get("authentication.oauth.clientSecret", "").rstrip("\r\n"),
        token_trusted=_joined(found, "authentication.oauth.trustedCertificates"),
    )


def _joined(found: Mapping[str, str], list_: str) -> str:
    return "\n".join(text for field, text in found.items() if field.startswith(list_))


def _read(cluster: ClusterAccess, use: SecretUse) -> str:
    wanted = f"which {cluster.field}.{use.field} wants"
    if cluster.secrets is None:
        raise SecretMissing(
            f"there is no {use.holder}, {wanted}: put it into the manifest, or name a "
            "folder of Secrets with --secrets"
        )
    secret = cluster.secrets / use.folder
    other = secret / use.other_key
    if use.other_key and other.is_file() and not (secret / use.key).exists():
        use = use._replace(key=use.other_key)
    try:
        if (content := (secret / use.key).read_text(encoding="utf-8")).strip():
            return content
        why = f"the key {use.key} of {use.holder}, {wanted}, is empty"
    except (FileNotFoundError, NotADirectoryError):
        keys = f"{use.key} or {use.other_key}" if use.other_key else use.key
        why = f"{use.holder} has no key {keys}, {wanted}"
        if secret.is_dir() and not any(secret.glob("[!.]*")):
            # So a pod has it for a Secret that is not there.
            why = f"there is no {use.holder}, or it is empty, {wanted}"
        elif not secret.is_dir():
            why = f"there is no {use.holder}, {wanted} (searched in {cluster.secrets})"
    except OSError as error:
        why = f"{secret / use.key}, {wanted}, cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        why = f"the key {use.key} of {use.holder}, {wanted}, is not text"
    raise SecretMissing(why)
