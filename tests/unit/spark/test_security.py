"""Security settings of Spark's own Kafka client."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from headrace.api import ClusterAccess, ClusterSpec
from headrace.errors import InvalidSpec
from headrace_spark.records import security_options


def access(folder: Path, **fields: object) -> ClusterAccess:
    spec = ClusterSpec.model_validate({"alias": "east", "bootstrapServers": "e:1"} | fields)
    return ClusterAccess(spec, "spec.source", folder)


def test_a_password_may_hold_anything(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "password").write_text('a"b\\c; d\n')
    login = {
        "type": "Plain",
        "username": "me",
        "password": {"secretName": "user", "key": "password"},
    }
    assert security_options(access(tmp_path, authentication=login)) == {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        r'required username="me" password="a\"b\\c; d";',
    }


def test_kafkas_client_gets_its_own_tokens(tmp_path: Path) -> None:
    (tmp_path / "idp").mkdir()
    (tmp_path / "idp" / "secret").write_text('a"b\\c; d\n')
    (tmp_path / "idp" / "ca.crt").write_text("ONE\nTWO\n")
    login = {
        "type": "OAuthBearer",
        "oauth": {
            "tokenEndpoint": "https://idp/token",
            "clientId": "me",
            "clientSecret": {"secretName": "idp", "key": "secret"},
            "trustedCertificates": [{"secretName": "idp", "key": "ca.crt"}],
            "scope": "read write",
            "extensions": {"pool": "blue"},
        },
    }
    package = "org.apache.kafka.common.security.oauthbearer"
    assert security_options(access(tmp_path, authentication=login)) == {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        "kafka.sasl.oauthbearer.header.urlencode": "true",
        "kafka.sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        "kafka.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required "
        r'clientId="me" clientSecret="a\"b\\c; d" scope="read write" extension_pool="blue" '
        r'ssl.truststore.type="PEM" ssl.truststore.certificates="ONE\nTWO\n";',
    }


def test_a_private_key_becomes_one_that_java_reads(tmp_path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    openssl = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    (tmp_path / "client").mkdir()
    (tmp_path / "client" / "tls.crt").write_text("CERTIFICATE")
    (tmp_path / "client" / "tls.key").write_bytes(openssl)
    tls = {"clientCertificate": {"secretName": "client"}}
    options = security_options(access(tmp_path, tls=tls))
    assert options["kafka.ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    (tmp_path / "client" / "tls.key").write_text("nonsense")
    with pytest.raises(InvalidSpec, match="the private key of "):
        security_options(access(tmp_path, tls=tls))


def test_an_open_cluster_needs_nothing(tmp_path: Path) -> None:
    assert security_options(access(tmp_path)) == {"kafka.security.protocol": "PLAINTEXT"}
