"""Passwords and certificates from a folder of Secrets, and the times to recreate clients."""

from pathlib import Path
from typing import Any

import pytest

from headrace.api import ClusterAccess, ClusterSpec
from headrace.errors import InvalidSpec
from headrace.kafka import (
    ReloadingClient,
    Renewal,
    SecretMissing,
    check_settings,
    client_config,
    read_credentials,
)

FIELDS = {
    "tls": {
        "trustedCertificates": [
            {"secretName": "one", "key": "ca.crt"},
            {"secretName": "two", "key": "ca.crt"},
        ],
        "clientCertificate": {"secretName": "client"},
    },
    "authentication": {
        "type": "ScramSha512",
        "username": "me",
        "password": {"secretName": "user", "key": "password"},
    },
}
FILES = {
    "one/ca.crt": "ONE",
    "two/ca.crt": "TWO",
    "client/tls.crt": "CERTIFICATE",
    "client/tls.key": "KEY",
    "user/password": " secret\n",
}


def cluster(secrets: Path | None, **fields: Any) -> ClusterAccess:
    spec = ClusterSpec.model_validate({"alias": "east", "bootstrapServers": "e:1"} | fields)
    return ClusterAccess(spec, "spec.source", secrets)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    return tmp_path


def test_what_files_hold(folder: Path) -> None:
    found = read_credentials(cluster(folder, **FIELDS))
    assert found.trusted == "ONE\nTWO"
    assert (found.certificate, found.private_key) == ("CERTIFICATE", "KEY")
    assert found.password == " secret"  # without the line ending, and otherwise unchanged
    assert "secret" not in repr(found)


def test_the_clients_settings(folder: Path) -> None:
    settings = client_config(cluster(folder, **FIELDS))
    assert settings["security.protocol"] == "SASL_SSL"
    assert settings["sasl.mechanism"] == "SCRAM-SHA-512"
    assert settings["ssl.endpoint.identification.algorithm"] == "https"
    assert settings["ssl.ca.pem"] == "ONE\nTWO"
    assert client_config(cluster(None))["security.protocol"] == "PLAINTEXT"
    assert client_config(cluster(None, tls={}))["security.protocol"] == "SSL"


STRIMZI = {
    "tls": {
        "trustedCertificates": [{"secretName": "kafka-cluster-ca-cert"}, {"configMapName": "ca"}],
        "clientCertificate": {"secretName": "ann"},
    },
    "authentication": {
        "type": "ScramSha512",
        "usernameFrom": {"secretName": "name"},
        "password": {"secretName": "bob"},
    },
}
"""References without keys, which Strimzi's Secrets do not need."""
STRIMZI_FILES = {
    "kafka-cluster-ca-cert/ca.crt": "ONE",
    "_configmaps/ca/ca.crt": "TWO",
    "ann/ca.crt": "NOT READ",
    "ann/user.crt": "CERTIFICATE",
    "ann/user.key": "KEY",
    "bob/password": "secret",
    "name/username": "bob\n",
}


def test_secrets_of_strimzi_need_no_keys(tmp_path: Path) -> None:
    for name, content in STRIMZI_FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    access = cluster(tmp_path, **STRIMZI)
    found = read_credentials(access)
    assert found.trusted == "ONE\nTWO"
    assert (found.certificate, found.private_key) == ("CERTIFICATE", "KEY")
    assert (found.username, found.password) == ("bob", "secret")
    assert client_config(access)["sasl.username"] == "bob"
    (tmp_path / "ann/user.key").unlink()
    with pytest.raises(SecretMissing, match=r"Secret ann has no key tls\.key or user\.key, which"):
        read_credentials(access)
    (tmp_path / "_configmaps/ca/ca.crt").rename(tmp_path / "_configmaps/ca/..data")
    with pytest.raises(SecretMissing, match="there is no ConfigMap ca, or it is empty, which"):
        read_credentials(access)


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (
            lambda folder: (folder / "user/password").rename(folder / "user/passphrase"),
            "Secret user has no key password, which spec.source.authentication.password wants",
        ),
        (
            lambda folder: (folder / "user/password").rename(folder / "user/..data"),
            "there is no Secret user, or it is empty, which spec.source.authentication.password",
        ),
        (
            lambda folder: (folder / "two").rename(folder / "three"),
            "there is no Secret two, which spec.source.tls.trustedCertificates[1] wants (searched",
        ),
        (
            lambda folder: (folder / "client/tls.key").write_text("\n"),
            "the key tls.key of Secret client, which spec.source.tls.clientCertificate."
            "privateKeyKey wants, is empty",
        ),
        (
            lambda folder: (folder / "user/password").write_bytes(b"\xff"),
            "the key password of Secret user, which spec.source.authentication.password wants, "
            "is not text",
        ),
        (
            lambda folder: ((folder / "one/ca.crt").unlink(), (folder / "one/ca.crt").mkdir()),
            "cannot be read: Is a directory",
        ),
    ],
)
def test_what_is_missing(break_it: Any, sentence: str, folder: Path) -> None:
    break_it(folder)
    with pytest.raises(SecretMissing) as missing:
        read_credentials(cluster(folder, **FIELDS))
    assert sentence in str(missing.value)


def test_no_folder_at_all() -> None:
    with pytest.raises(
        SecretMissing, match="put it into the manifest, or name a folder of Secrets"
    ):
        read_credentials(cluster(None, **FIELDS))


def test_settings_are_checked_without_secrets() -> None:
    check_settings(cluster(None, **FIELDS).spec)
    with pytest.raises(InvalidSpec, match="Invalid value"):
        check_settings(cluster(None, config={"debug": "no such"}, **FIELDS).spec)


def test_a_client_is_made_anew_when_its_files_change(folder: Path) -> None:
    access = cluster(folder, **FIELDS)
    made = iter(range(9))
    renewed = ReloadingClient(access, lambda: next(made), poll_interval_s=0.0)
    renewal = Renewal(access, poll_interval_s=0.0)
    assert (renewed.get(), renewed.get(), renewal.due) == (0, 0, False)
    (folder / "user/password").write_text("other")
    assert (renewal.due, renewed.get(), renewed.get()) == (True, 1, 1)
    (folder / "user/password").unlink()
    assert (renewed.get(), renewed.get()) == (2, 2)
