"""Clusters behind TLS and passwords: copies from and to them, and messages if access is denied."""

import base64
import json
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, spec
from support.patience import WITHIN_S
from support.records import (
    Load,
    arrived,
    compare,
    make_topic,
    numbered,
    produce,
    read,
    unique,
)
from support.security import (
    CANARY,
    GUARDED,
    Mounted,
    access,
    by_certificate,
    by_password,
    change_password,
    command_lines,
    grant,
    trusting,
)
from support.verifying import result_in, verify_command

from headrace.kafka import Admin
from headrace.sandbox import Authority, ClusterPlan, Sandbox, SandboxCluster

pytestmark = pytest.mark.in_one_worker
WaitUntil = Callable[..., Any]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Yield the clusters ``east`` and ``west`` with TLS listeners.

    The user has exactly the permissions that docs/permissions.md names.
    """
    home = tmp_path_factory.mktemp("sandboxes")
    plans = [ClusterPlan(name, secure=True, properties=GUARDED) for name in ("east", "west")]
    with Sandbox.start("locked", plans, home=home) as sandbox:
        source, target = sandbox.clusters
        grant(source, "*", "Read")
        grant(source, "heartbeats", "Create", "Write")
        grant(target, "east.*", "Create", "Write", "Alter")
        grant(target, "mm2-headrace-progress.east.internal", "Create", "Read", "Write")
        grant(target, "heartbeats", "Create", "Write")
        yield sandbox


@pytest.fixture(scope="module")
def source(locked: Sandbox) -> SandboxCluster:
    return locked.cluster("east")


@pytest.fixture(scope="module")
def target(locked: Sandbox) -> SandboxCluster:
    return locked.cluster("west")


@pytest.fixture
def mounted(locked: Sandbox, tmp_path: Path) -> Mounted:
    """Return the Secrets of both, in a folder of this test's own."""
    return Mounted(tmp_path / "mounted", locked.secrets)


def flow(name: str, from_: dict[str, Any], to: dict[str, Any], topic: str) -> dict[str, Any]:
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": {"name": name},
        "spec": {"source": from_, "target": to, "topics": {"include": [topic]}},
    }


def secret_values(folder: Path) -> list[str]:
    """Return the secret values: passwords and lines of private keys, as text and base64."""
    found = [file.read_text() for file in folder.glob("*/password")]
    found += [file.read_text().splitlines()[1] for file in folder.glob("*/tls.key")]
    return found + [base64.b64encode(value.encode()).decode() for value in found]


def assert_unseen(values: list[str], *places: str) -> None:
    for value in values:
        for number, place in enumerate(places):
            assert value not in place, f"a secret is to be seen in place {number}"


def test_a_flow_with_password_and_certificate_copies_everything_and_shows_no_secret(
    source: SandboxCluster,
    target: SandboxCluster,
    mounted: Mounted,
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    topic = make_topic(spec(source), unique("locked"), 4)
    produce(spec(source), topic, numbered(2_000, 4))
    document = flow("locked", by_password(source), by_certificate(target), topic)
    with FlowRun(tmp_path, [document], "--secrets", str(mounted.folder)) as run:
        wait_until(run.ready)
        wait_until(lambda: arrived(spec(target), f"{source.name}.{topic}") == 2_000)
        seen = json.dumps(run.status()), command_lines()
        assert run.stop() == 0
    found = compare(read(spec(source), topic), read(spec(target), f"{source.name}.{topic}"))
    assert (found.missing, found.repeated, found.in_order) == (0, 0, True)
    values = secret_values(mounted.folder)
    assert len(values) == 8
    assert_unseen(values, run.output, *seen)


@pytest.mark.parametrize("mechanism", ["Plain", "ScramSha256"])
def test_the_other_mechanisms_with_secret_documents(
    mechanism: str, locked: Sandbox, tmp_path: Path, runtime_folder: Path
) -> None:
    source, target = locked.clusters
    topic = make_topic(spec(source), unique("mechanism"), 1)
    produce(spec(source), topic, numbered(100, 1))
    document = flow("mechanism", by_password(source, mechanism), by_password(target), topic)
    documents = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret.name},
            "data": {
                file.name: base64.b64encode(file.read_bytes()).decode() for file in secret.iterdir()
            },
        }
        for secret in locked.secrets.iterdir()
    ]
    with FlowRun(tmp_path, [document, *documents], "--until-caught-up") as run:
        assert run.end(WITHIN_S) == 0, run.output
    found = compare(read(spec(source), topic), read(spec(target), f"{source.name}.{topic}"))
    assert (found.missing, found.in_order) == (0, True)
    assert_unseen(secret_values(locked.secrets), run.output)
    assert list(runtime_folder.glob("headrace-secrets-*")) == []


def test_secret_documents_lie_in_a_private_folder_that_survives_no_run(
    source: SandboxCluster,
    target: SandboxCluster,
    tmp_path: Path,
    runtime_folder: Path,
    wait_until: WaitUntil,
) -> None:
    document = flow("private", by_password(source), by_certificate(target), unique("none"))
    password = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{source.name}-user"},
        "stringData": {"password": "canary-4711"},
    }

    def folders() -> list[Path]:
        return list(runtime_folder.glob("headrace-secrets-*"))

    with FlowRun(tmp_path, [document, password]) as run:
        wait_until(lambda: run.condition("Ready").get("reason") == "SecretMissing")
        (folder,) = folders()
        file = folder / f"{source.name}-user" / "password"
        assert file.read_text() == "canary-4711"
        assert {stat.S_IMODE(at.stat().st_mode) for at in (folder, file.parent)} == {0o700}
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert_unseen(["canary-4711"], json.dumps(run.status()), command_lines(), run.output)
        run.process.send_signal(signal.SIGKILL)
        run.process.wait()
        assert folders() == [folder]
    with FlowRun(tmp_path, [document, password]) as run:
        wait_until(lambda: run.condition("Ready").get("reason") == "SecretMissing")
        assert folder not in folders()
        assert run.stop() == 0
    assert folders() == []


def test_secret_documents_and_a_folder_are_too_much(
    source: SandboxCluster, target: SandboxCluster, mounted: Mounted, tmp_path: Path
) -> None:
    document = flow("twice", by_password(source), by_password(target), "orders")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a-user"}}
    with FlowRun(tmp_path, [document, secret], "--secrets", str(mounted.folder)) as run:
        assert run.end(WITHIN_S) == 3
    assert "holds Secret documents (a-user), and --secrets names a folder" in run.output


def test_what_is_missing_or_wrong_is_reported_and_the_flow_goes_on_when_it_is_corrected(
    source: SandboxCluster,
    target: SandboxCluster,
    mounted: Mounted,
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    topic = make_topic(spec(source), unique("shut"), 2)
    produce(spec(source), topic, numbered(500, 2))
    user, password = f"{source.name}-user", mounted.password(source)
    mounted.take(user)
    document = flow("shut", by_password(source), by_certificate(target), topic)
    with FlowRun(tmp_path, [document], "--secrets", str(mounted.folder)) as run:

        def stalled_by(reason: str) -> str:
            stalled, _ = wait_until(
                lambda: (run.condition("Stalled"), run.condition("Ready")),
                until=lambda seen: (
                    (seen[0].get("reason"), seen[1].get("status")) == (reason, "False")
                ),
            )
            message: str = stalled["message"]
            return message

        wants = "which spec.source.authentication.password wants"
        assert f"there is no Secret {user}, {wants}" in stalled_by("SecretMissing")
        mounted.write(user, {"other": b"x"})
        wait_until(
            lambda: f"Secret {user} has no key password, {wants}" in stalled_by("SecretMissing")
        )
        mounted.write(user, {"password": b"canary-0815"})
        message = stalled_by("AuthenticationFailed")
        assert "invalid credentials with SASL mechanism SCRAM-SHA-512; check" in message
        assert f"username headrace, and the key password of Secret {user}" in message
        mounted.write(user, {"password": f"{password}\n".encode()})
        wait_until(run.ready)
        assert run.condition("Stalled") == {}
        wait_until(lambda: arrived(spec(target), f"{source.name}.{topic}") == 500)
        assert run.stop() == 0
    found = compare(read(spec(source), topic), read(spec(target), f"{source.name}.{topic}"))
    assert (found.missing, found.repeated, found.in_order) == (0, 0, True)
    assert_unseen(["canary-0815", password], run.output)
    assert "Traceback" not in run.output


@pytest.fixture
def awkward_password(source: SandboxCluster, mounted: Mounted) -> Iterator[None]:
    """Change the source's password while the test lasts."""
    before = mounted.password(source)
    change_password(source, CANARY)
    mounted.write(f"{source.name}-user", {"password": CANARY.encode()})
    yield
    change_password(source, before)


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("awkward_password")
def test_a_mirror_test_of_locked_clusters_gets_a_verdict(
    source: SandboxCluster,
    target: SandboxCluster,
    mounted: Mounted,
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    name = unique("judged")
    grant(source, f"{name}-*", "Create", "Write")
    grant(source, "mm2-headrace-tests.internal", "Create", "Write")
    grant(target, f"east.{name}-*", "Read")
    for cluster in (source, target):
        grant(cluster, "headrace", "Describe", on="group")
    document = flow(name, by_password(source), by_certificate(target), f"{name}-.*")
    test = {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "MirrorTest",
        "metadata": {"name": name},
        "spec": {
            "flowName": name,
            "load": {"topics": 1, "partitions": 2, "producers": 1, "messages": 2_000},
            "settleSeconds": 60,
        },
    }
    report, options = tmp_path / "report", ("--secrets", str(mounted.folder))
    seen: list[str] = []
    with FlowRun(tmp_path, [document, test], *options) as run:
        wait_until(run.status)
        command = verify_command(run.file, report, *options)
        with (tmp_path / "verify.log").open("wb") as log:
            verify = subprocess.Popen(command, stdout=log, stderr=log)
        while verify.poll() is None:
            seen.append(command_lines())
            time.sleep(0.5)
    output = (tmp_path / "verify.log").read_text()
    assert verify.returncode == 0, output
    result = result_in(report)
    assert result.counts is not None
    assert (result.verdict, result.counts.missing) == ("Passed", 0)
    assert result.latency_ms is not None
    assert result.latency_ms.p50 >= 0
    files = [file.read_text() for file in report.iterdir() if file.is_file()]
    assert {"report.html", "verify.log"} <= {file.name for file in report.iterdir()}
    assert_unseen(secret_values(mounted.folder), output, run.output, *files, *seen)


@pytest.mark.long
def test_password_and_certificate_are_changed_under_load(
    source: SandboxCluster,
    locked: Sandbox,
    start_cluster: Callable[..., SandboxCluster],
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    old, new = Authority("old"), Authority("new")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(old.certificate)
    strict = start_cluster(
        "strict", secure=True, properties={"ssl.truststore.location": str(trusted)}
    )
    home = strict.brokers[0].folder.parent.parent
    mounted = Mounted(tmp_path / "mounted", locked.secrets, home / "secrets")

    def certify(authority: Authority) -> None:
        certificate, key = authority.issue("headrace")
        mounted.write("strict-client", {"tls.crt": certificate, "tls.key": key})

    certify(old)
    before = mounted.password(source)
    topic = make_topic(spec(source), unique("changed"), 4)
    document = flow("changed", by_password(source), by_certificate(strict), topic)
    document["spec"]["tasks"] = {"max": 2}
    copied = f"{source.name}.{topic}"
    try:
        with (
            FlowRun(tmp_path, [document], "--secrets", str(mounted.folder)) as run,
            Load(spec(source), topic, 4, per_second=500) as load,
        ):
            wait_until(run.ready)
            change_password(source, "rotated-1")
            mounted.write(f"{source.name}-user", {"password": b"rotated-1"})
            certify(new)
            trusted.write_bytes(new.certificate)
            wait_until(lambda: run.output.count("secrets changed: new clients") >= 2)
            # No earlier connection is left: all clients have to authenticate again.
            strict.broker(1).restart()
            source.broker(1).restart()
            sent = load.sent
            wait_until(lambda: sum(map(len, read(spec(strict), copied).values())) > sent)
            units = {unit["restarts"] for unit in run.units()}
        with FlowRun(
            tmp_path, [document], "--secrets", str(mounted.folder), "--until-caught-up"
        ) as last:
            assert last.end(WITHIN_S) == 0, last.output
    finally:
        change_password(source, before)
    found = compare(read(spec(source), topic), read(spec(strict), copied))
    print(f"{load.sent} records, {found.repeated} repeated, restarts {units}")
    assert (found.missing, found.in_order) == (0, True)
    assert units == {0}
    assert_unseen(["rotated-1", before], run.output, command_lines())


def _untrusted(cluster: SandboxCluster) -> dict[str, Any]:
    certificate = {"secretName": "other-ca", "key": "ca.crt"}
    return by_password(cluster) | {"tls": {"trustedCertificates": [certificate]}}


def _other_host(cluster: SandboxCluster) -> dict[str, Any]:
    servers = cluster.sasl_servers.replace("127.0.0.1", "localhost")
    return by_password(cluster) | {"bootstrapServers": servers}


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


@pytest.mark.parametrize(
    ("fields", "error", "sentences"),
    [
        (
            _untrusted,
            "TlsFailed",
            [
                "is refused: unable to get local issuer certificate",
                "spec.source.tls.trustedCertificates (ca.crt of Secret other-ca) must hold the "
                "authority that signed it",
            ],
        ),
        (
            _other_host,
            "TlsFailed",
            [
                "certificate is not valid for 'localhost'",
                "use a name in spec.source.bootstrapServers that the certificate has",
            ],
        ),
        (
            lambda cluster: _without(by_password(cluster), "tls", "authentication"),
            "TlsFailed",
            ["speaks TLS; set spec.source.tls"],
        ),
        (
            lambda cluster: _without(by_password(cluster), "tls"),
            "TlsFailed",
            ["speaks TLS; set spec.source.tls"],
        ),
        (
            lambda cluster: by_password(cluster) | {"bootstrapServers": cluster.bootstrap_servers},
            "TlsFailed",
            ["does not speak TLS; leave spec.source.tls out"],
        ),
        (
            lambda cluster: by_certificate(cluster) | {"tls": trusting(cluster)},
            "TlsFailed",
            ["wants a client certificate; set spec.source.tls.clientCertificate"],
        ),
        (
            lambda cluster: (
                by_certificate(cluster)
                | {"tls": trusting(cluster) | {"clientCertificate": {"secretName": "other-client"}}}
            ),
            "TlsFailed",
            ["does not accept the client certificate in Secret other-client"],
        ),
        (
            lambda cluster: (
                by_certificate(cluster)
                | {"tls": trusting(cluster) | {"clientCertificate": {"secretName": "mixed"}}}
            ),
            "TlsFailed",
            ["could not use tls.crt of Secret mixed, tls.key of Secret mixed", "key values"],
        ),
        (
            lambda cluster: (
                by_certificate(cluster)
                | {"tls": {"trustedCertificates": [{"secretName": "junk", "key": "ca.crt"}]}}
            ),
            "TlsFailed",
            ["could not use ca.crt of Secret junk", "not in PEM format"],
        ),
        (
            lambda cluster: (
                _without(by_password(cluster), "tls")
                | {"bootstrapServers": cluster.bootstrap_servers}
            ),
            "AuthenticationFailed",
            ["the listener wants no login; leave spec.source.authentication out"],
        ),
        (
            lambda cluster: _without(by_password(cluster), "authentication"),
            "Unreachable",
            ["where its listener wants a login, set spec.source.authentication"],
        ),
    ],
)
def test_what_keeps_a_client_out_is_said(
    fields: Callable[[SandboxCluster], dict[str, Any]],
    error: str,
    sentences: list[str],
    source: SandboxCluster,
    mounted: Mounted,
) -> None:
    other = Authority("other")
    certificate, key = other.issue("headrace")
    mounted.write("other-ca", {"ca.crt": other.certificate})
    mounted.write("other-client", {"tls.crt": certificate, "tls.key": key})
    theirs = mounted.folder / f"{source.name}-client" / "tls.key"
    mounted.write("mixed", {"tls.crt": certificate, "tls.key": theirs.read_bytes()})
    mounted.write("junk", {"ca.crt": b"no certificate"})
    with pytest.raises(Exception, match="could not") as refused:
        Admin(access(fields(source), mounted.folder), timeout_s=5).cluster_id()
    assert type(refused.value).__name__ == error
    assert [sentence for sentence in sentences if sentence not in str(refused.value)] == []
