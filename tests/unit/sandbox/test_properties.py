"""Settings of brokers."""

from pathlib import Path

from headrace.sandbox.broker_config import ClusterSecurity, broker_properties


def _settings(node_id: int, brokers: int, extra: dict[str, str]) -> dict[str, str]:
    ports = [(10_000 + n, 20_000 + n) for n in range(1, brokers + 1)]
    text = broker_properties(node_id, ports, Path("/data"), extra)
    return dict(line.split("=", 1) for line in text.splitlines())


def test_a_single_broker_keeps_one_copy_of_everything() -> None:
    settings = _settings(1, 1, {})
    factors = {v for k, v in settings.items() if k.endswith(("replication.factor", "min.isr"))}
    assert factors == {"1"}
    assert "broker.session.timeout.ms" not in settings


def test_three_brokers_keep_three_copies_and_need_two() -> None:
    settings = _settings(2, 3, {})
    assert settings["default.replication.factor"] == "3"
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == "2"
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:10002,CONTROLLER://127.0.0.1:20002"
    assert settings["controller.quorum.voters"] == (
        "1@127.0.0.1:20001,2@127.0.0.1:20002,3@127.0.0.1:20003"
    )
    assert settings["broker.session.timeout.ms"] == "3000"


def test_a_secure_broker_has_two_listeners_more_and_its_password_is_on_no_command_line(
    tmp_path: Path,
) -> None:
    security = ClusterSecurity.make("east", tmp_path / "secrets", tmp_path, [(30_001, 40_001)])
    text = broker_properties(1, [(10_001, 20_001)], tmp_path, {}, security)
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert settings["listeners"].endswith(",SASL_SSL://127.0.0.1:30001,SSL://127.0.0.1:40001")
    assert settings["inter.broker.listener.name"] == "PLAINTEXT"
    assert settings["sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    password = (tmp_path / "secrets" / "east-user" / "password").read_text()
    assert password in settings["listener.name.sasl_ssl.plain.sasl.jaas.config"]
    assert password not in " ".join(security.scram_users())
    kept = {
        str(file.relative_to(tmp_path)): file.stat().st_mode & 0o77 for file in _files(tmp_path)
    }
    assert kept == dict.fromkeys(
        [
            "broker.pem",
            *("secrets/east-ca/ca.crt", "secrets/east-user/password"),
            *("secrets/east-client/tls.crt", "secrets/east-client/tls.key"),
        ],
        0,
    )


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_is_asked_for_wins() -> None:
    assert _settings(1, 1, {"num.io.threads": "8"})["num.io.threads"] == "8"
