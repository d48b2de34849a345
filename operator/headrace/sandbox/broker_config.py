"""Configuration of brokers, with the certificates and passwords of a secure cluster.

Certificates and passwords are stored in a folder for ``--secrets``. Its layout, ``<name>/<key>``,
is that in which Kubernetes mounts Secrets.
"""

import base64
import hashlib
import ipaddress
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from headrace.sandbox.processes import HOST

USERNAME = "headrace"
_ITERATIONS = 4096  # minimum in Kafka
_VALID = timedelta(days=365)


@dataclass(frozen=True)
class ClusterSecurity:
    """Security settings of one cluster: ports, files of its brokers, and the user's password."""

    ports: Sequence[tuple[int, int]]
    """Ports of each broker for SASL over TLS and for client certificates."""
    key_store: Path
    """PEM file with the private key and the certificate of the brokers."""
    trust_store: Path
    """PEM file with the authority that signed the brokers' and clients' certificates."""
    password: str
    """Password of ``USERNAME``."""

    @classmethod
    def make(
        cls, cluster: str, secrets_folder: Path, folder: Path, ports: Sequence[tuple[int, int]]
    ) -> "ClusterSecurity":
        """Create the files of the brokers in ``folder``, and the Secrets for clients.

        The Secrets are ``<cluster>-ca``, ``<cluster>-client`` and ``<cluster>-user``.
        """
        authority = Authority(cluster)
        certificate, key = authority.issue(cluster, address=HOST)
        key_store = folder / "broker.pem"
        write_private(key_store, key + certificate)
        trust_store = secrets_folder / f"{cluster}-ca" / "ca.crt"
        write_private(trust_store, authority.certificate)
        certificate, key = authority.issue(USERNAME)
        write_private(secrets_folder / f"{cluster}-client" / "tls.crt", certificate)
        write_private(secrets_folder / f"{cluster}-client" / "tls.key", key)
        password = secrets.token_urlsafe(18)
        write_private(secrets_folder / f"{cluster}-user" / "password", password.encode())
        return cls(ports, key_store, trust_store, password)

    def scram_users(self) -> Iterator[str]:
        """Yield the users for ``kafka-storage format``.

        Passwords are salted, because all users of the machine can see a command line.
        """
        for digest in ("sha256", "sha512"):
            salt = secrets.token_bytes(16)
            salted = hashlib.pbkdf2_hmac(digest, self.password.encode(), salt, _ITERATIONS)
            fields = {
                "name": USERNAME,
                "salt": f'"{base64.b64encode(salt).decode()}"',
                "saltedpassword": f'"{base64.b64encode(salted).decode()}"',
                "iterations": _ITERATIONS,
            }
            joined = ",".join(f"{name}={value}" for name, value in fields.items())
            yield f"SCRAM-SHA-{digest.removeprefix('sha')}=[{joined}]"


class Authority:
    """Certificate authority whose private key exists only in memory."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"{name} authority")
        certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(Encoding.PEM)
        """Certificate of the authority in PEM."""

    def issue(
        self, name: str, *, address: str | None = None, valid: timedelta = _VALID
    ) -> tuple[bytes, bytes]:
        """Return a certificate and its private key in PEM.

        It is valid from one hour ago until ``valid`` from now. With a negative ``valid`` it has
        expired. ``address`` is the address of a server.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(name), self._name, key, valid)
        if address is not None:
            names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(Encoding.PEM), key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    valid: timedelta = _VALID,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks may differ
        .not_valid_after(now + valid)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def write_private(file: Path, content: bytes) -> None:
    """Write a file that no other user can read, and create its folder if necessary."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.touch(mode=0o600)
    file.write_bytes(content)


_LOGIN_MODULES = {
    "plain": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "scram-sha-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "scram-sha-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def broker_properties(
    node_id: int,
    ports: Sequence[tuple[int, int]],
    data: Path,
    extra: Mapping[str, str],
    security: ClusterSecurity | None = None,
) -> str:
    """Return the settings of node ``node_id`` (from 1).

    ``ports`` are the client port and the controller port of each node.
    """
    client, controller = ports[node_id - 1]
    copies = min(3, len(ports))
    in_sync = max(1, copies - 1)
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "controller.quorum.voters": ",".join(
            f"{voter}@{HOST}:{port}" for voter, (_, port) in enumerate(ports, start=1)
        ),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{client}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        # Topics are created explicitly. An automatically created topic would hide a wrong name.
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        # A single broker cannot create internal topics with three replicas, the default. They have
        # few partitions, because each costs files and start-up time.
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 2,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        # The default of 128 MB is half of the heap.
        "log.cleaner.dedupe.buffer.size": 4 * 2**20,
        "log.cleaner.threads": 1,
        "num.network.threads": 2,
        "num.io.threads": 4,
    }
    if len(ports) > 1:
        # The leaderships of a killed broker move when its session ends, here after 3 s instead of 9
        # s. A broker that restarts after a kill waits for that as well. A single broker keeps 9 s:
        # on a busy machine it would lose its own session, and no other broker could take over.
        settings |= {"broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500}
    if security:
        settings |= _secure(settings, node_id, security)
    return "".join(f"{key}={value}\n" for key, value in (settings | dict(extra)).items())


def rack_properties(node_id: int, racks: Sequence[str]) -> dict[str, str]:
    """Return the rack settings of node ``node_id`` (from 1), or none without racks."""
    if not racks:
        return {}
    return {
        "broker.rack": racks[(node_id - 1) % len(racks)],
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }


def _secure(
    settings: Mapping[str, object], node_id: int, security: ClusterSecurity
) -> dict[str, object]:
    """Return the settings of two additional listeners.

    Brokers and controllers still communicate with each other in plain text.
    """
    sasl, tls = security.ports[node_id - 1]
    more = f",SASL_SSL://{HOST}:{sasl},SSL://{HOST}:{tls}"
    secure: dict[str, object] = {
        "listeners": f"{settings['listeners']}{more}",
        "advertised.listeners": f"{settings['advertised.listeners']}{more}",
        "listener.security.protocol.map": (
            f"{settings['listener.security.protocol.map']},SASL_SSL:SASL_SSL,SSL:SSL"
        ),
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": security.key_store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": security.trust_store,
        "sasl.enabled.mechanisms": ",".join(_LOGIN_MODULES).upper(),
    }
    for mechanism, module in _LOGIN_MODULES.items():
        user = f' user_{USERNAME}="{security.password}"' if mechanism == "plain" else ""
        key = f"listener.name.sasl_ssl.{mechanism}.sasl.jaas.config"
        secure[key] = f"{module} required{user};"
    return secure
