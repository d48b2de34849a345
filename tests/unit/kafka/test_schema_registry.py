"""The client of schema registries against a registry on this machine."""

from pathlib import Path
from typing import Any

import pytest
from support.schema_registry import FakeRegistry, running_schema_registry

from headrace.api import AuditSchemas
from headrace.errors import GaveUp, HeadraceError
from headrace.kafka import SchemaRegistry

FIELD = "spec.audit.schemas"
BASIC = {"type": "Basic", "username": "reader", "password": {"secretName": "login"}}
BEARER = {"type": "Bearer", "token": {"secretName": "login", "key": "token"}}


def client(registry: FakeRegistry, folder: Path, **fields: Any) -> SchemaRegistry:
    """Return a client whose Secrets are in ``folder``."""
    for name, content in (("password", "se:cret\n"), ("token", "t0ken\n")):
        (folder / "login").mkdir(exist_ok=True)
        (folder / "login" / name).write_text(content)
    schemas = AuditSchemas.model_validate({"url": registry.url, **fields})
    return SchemaRegistry(schemas, FIELD, folder)


def test_unknown_ids_are_returned_and_each_id_is_requested_once(tmp_path: Path) -> None:
    with running_schema_registry({1, 7}) as registry:
        assert client(registry, tmp_path).unknown([7, 8, 1, 8, 7]) == {8}
        assert registry.asked == [f"/schemas/ids/{n}" for n in (1, 7, 8)]


@pytest.mark.parametrize(
    ("login", "header"), [(BASIC, "Basic cmVhZGVyOnNlOmNyZXQ="), (BEARER, "Bearer t0ken")]
)
def test_password_and_token_come_from_secrets(
    tmp_path: Path, login: dict[str, Any], header: str
) -> None:
    with running_schema_registry({1}, header) as registry:
        assert client(registry, tmp_path, authentication=login).unknown([1, 2]) == {2}
        with pytest.raises(GaveUp, match=r"refuses the user \(401\); check spec\.audit\.schemas"):
            client(registry, tmp_path).unknown([1])
        (tmp_path / "login").rename(tmp_path / "other")
        missing = SchemaRegistry(
            AuditSchemas.model_validate({"url": registry.url, "authentication": login}),
            FIELD,
            tmp_path,
        )
        with pytest.raises(HeadraceError, match=r"there is no Secret login, which spec\.audit"):
            missing.unknown([1])


@pytest.mark.parametrize(
    ("holder", "folder"),
    [({"secretName": "ca"}, "ca"), ({"configMapName": "ca"}, "_configmaps/ca")],
)
def test_authorities_come_from_secrets_and_config_maps(
    tmp_path: Path, holder: dict[str, str], folder: str
) -> None:
    with running_schema_registry({1}, tls=True) as registry:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "ca.crt").write_text(registry.certificate)
        assert client(registry, tmp_path, trustedCertificates=[holder]).unknown([1, 2]) == {2}
        with pytest.raises(GaveUp, match=r"certificate of the schema registry .* is refused"):
            client(registry, tmp_path).unknown([1])
        (tmp_path / folder / "ca.crt").write_text("no certificate")
        with pytest.raises(GaveUp, match=r"schemas\.trustedCertificates cannot be used"):
            client(registry, tmp_path, trustedCertificates=[holder]).unknown([1])


def test_a_registry_that_recovers_is_asked_again(tmp_path: Path) -> None:
    with running_schema_registry({1}) as registry:
        registry.answers = [500, 503]
        assert client(registry, tmp_path).unknown([1]) == set()
        registry.answers = [500, 500, 500]
        with pytest.raises(GaveUp, match=r"answers GET /schemas/ids/1 with status 500; check that"):
            client(registry, tmp_path).unknown([1])


def test_a_server_that_is_no_registry_proves_nothing(tmp_path: Path) -> None:
    with running_schema_registry({1}) as registry:
        other = AuditSchemas.model_validate({"url": f"{registry.url}/apis/"})
        with pytest.raises(GaveUp, match="answers GET /schemas/ids/2 with status 404"):
            SchemaRegistry(other, FIELD, tmp_path).unknown([2])
    with pytest.raises(GaveUp, match=r"refuses connections \(nothing listens there\); check"):
        client(registry, tmp_path).unknown([1])
