"""Settings of brokers."""

from pathlib import Path

from headrace.sandbox.properties import broker_properties


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


def test_what_is_asked_for_wins() -> None:
    assert _settings(1, 1, {"num.io.threads": "8"})["num.io.threads"] == "8"
