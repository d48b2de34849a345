"""OAUTHBEARER: flows and mirror tests whose clusters take tokens of a real token endpoint."""

import base64
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.flows import FlowRun, spec
from support.patience import WITHIN_S
from support.records import Load, arrived, compare, make_topic, read, unique
from support.security import Mounted, command_lines
from support.token_endpoint import (
    SECRET,
    TokenEndpoint,
    by_token,
    running_token_endpoint,
    secrets_of,
)
from support.verifying import result_in, verify_command

from headrace.cli.main import main
from headrace.sandbox import ClusterPlan, Sandbox

pytestmark = pytest.mark.in_one_worker
WaitUntil = Callable[..., Any]
LIFETIME_S = 6.0
REFUSED = (
    "refuses the client headrace client (401 invalid_client: Client authentication failed); check "
    "spec.source.authentication.oauth.clientId, and the key secret of Secret issuer-client"
)


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenEndpoint]:
    with running_token_endpoint() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def locked(issuer: TokenEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Yield clusters ``east`` and ``west`` whose brokers accept tokens of ``issuer``."""
    properties = issuer.broker_properties()
    plans = [ClusterPlan(name, secure=True, properties=properties) for name in ("east", "west")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", issuer.java_options())
        with Sandbox.start("tokens", plans, home=tmp_path_factory.mktemp("sandboxes")) as sandbox:
            patch.undo()
            yield sandbox


@pytest.fixture
def mounted(locked: Sandbox, issuer: TokenEndpoint, tmp_path: Path) -> Iterator[Mounted]:
    folder = Mounted(tmp_path / "mounted", locked.secrets)
    for name, content in secrets_of(issuer).items():
        folder.write(name, content)
    yield folder
    issuer.start()
    issuer.lifetime_s, issuer.answer = 3600.0, None


def flow(name: str, issuer: TokenEndpoint, locked: Sandbox, **more: Any) -> dict[str, Any]:
    source, target = (by_token(cluster, issuer) for cluster in locked.clusters)
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": {"name": name},
        "spec": {"source": source, "target": target, "topics": {"include": [f"{name}.*"]}, **more},
    }


def assert_unseen(issuer: TokenEndpoint, *places: str) -> None:
    """Neither the secret nor a token, in whole or the part that is different in each."""
    secrets = [SECRET, json.dumps(SECRET)[1:-1], base64.b64encode(SECRET.encode()).decode()]
    assert issuer.issued
    for value in (*secrets, *(token.rpartition(".")[2] for token in issuer.issued)):
        for number, place in enumerate(places):
            assert value not in place, f"a secret is to be seen in place {number}"


@pytest.mark.long
def test_an_endpoint_that_is_away_for_longer_than_tokens_are_good(
    *,
    issuer: TokenEndpoint,
    locked: Sandbox,
    mounted: Mounted,
    tmp_path: Path,
    wait_until: WaitUntil,
) -> None:
    source, target = locked.clusters
    name = make_topic(spec(source), unique("tokens"), 2)
    copy = f"{source.name}.{name}"
    issuer.lifetime_s = LIFETIME_S
    secrets = ("--secrets", str(mounted.folder))
    document = flow(name, issuer, locked, discovery={"topicsSeconds": 1})
    mounted.write("issuer-client", {"secret": b"not it"})
    with (
        FlowRun(tmp_path, [document], *secrets) as run,
        Load(spec(source), name, 2, per_second=300) as load,
    ):

        def stalled_by(why: str) -> dict[str, Any]:
            found: dict[str, Any]
            found, _ = wait_until(
                lambda: (run.condition("Stalled"), run.condition("Ready")),
                until=lambda seen: (
                    why in seen[0].get("message", "") and seen[1].get("status") == "False"
                ),
            )
            assert found["reason"] == "AuthenticationFailed"
            return found

        refused = stalled_by(REFUSED)
        mounted.write("issuer-client", {"secret": SECRET.encode()})
        wait_until(lambda: arrived(spec(target), copy) > 300)
        wait_until(run.ready)
        before = len(issuer.issued)
        wait_until(lambda: len(issuer.issued) > before + 2)  # two processes
        wait_until(run.ready)  # tokens are replaced while the flow copies
        assert "stalled: checking the claim" not in run.output
        issuer.stop()
        away = stalled_by(f"the token endpoint {issuer.url} refuses connections")
        until_then = load.sent
        issuer.start()
        wait_until(lambda: arrived(spec(target), copy) > until_then)
        wait_until(lambda: run.ready() and not run.condition("Stalled"))
        seen = command_lines()
    with FlowRun(tmp_path, [document], *secrets, "--until-caught-up") as last:
        assert last.end(WITHIN_S) == 0, last.output
    found = compare(read(spec(source), name), read(spec(target), copy))
    print(f"{load.sent} records, {found.repeated} repeated, {len(issuer.issued)} tokens")
    assert (found.missing, found.in_order) == (0, True)
    assert_unseen(issuer, last.output, seen, json.dumps([refused, away]))
    assert "Traceback" not in last.output


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"", REFUSED),
        ((200, b"<html>welcome</html>"), "has no token in it (access_token); is spec.source."),
        (None, "refuses connections (nothing listens there); check spec.source."),
    ],
)
def test_check_says_why_there_is_no_token(
    *,
    answer: Any,
    sentence: str,
    issuer: TokenEndpoint,
    locked: Sandbox,
    mounted: Mounted,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if answer is None:
        issuer.stop()
    elif answer:
        issuer.answer = answer
    else:
        mounted.write("issuer-client", {"secret": b"not it"})
    file = tmp_path / "flow.yaml"
    file.write_text(json.dumps(flow("checked", issuer, locked)))
    assert main(["check", str(file), "--secrets", str(mounted.folder)]) != 0
    printed = capsys.readouterr()
    assert sentence in printed.out + printed.err
    assert "not it" not in printed.out + printed.err


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_a_mirror_test_gets_a_verdict(
    issuer: TokenEndpoint, locked: Sandbox, mounted: Mounted, tmp_path: Path, wait_until: WaitUntil
) -> None:
    name = unique("judged")
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
    issuer.lifetime_s = 2 * LIFETIME_S
    report, options = tmp_path / "report", ("--secrets", str(mounted.folder))
    seen: list[str] = []
    with FlowRun(tmp_path, [flow(name, issuer, locked), test], *options) as run:
        wait_until(run.status)
        command = verify_command(run.file, report, *options)
        with (tmp_path / "verify.log").open("wb") as log:
            verify = subprocess.Popen(command, stdout=log, stderr=log)
        while verify.poll() is None:
            seen.append(command_lines())
            with suppress(subprocess.TimeoutExpired):
                verify.wait(1)
    output = (tmp_path / "verify.log").read_text()
    assert verify.returncode == 0, output
    result = result_in(report)
    assert result.counts is not None
    assert (result.verdict, result.counts.missing) == ("Passed", 0)
    files = [file.read_text(errors="replace") for file in report.rglob("*") if file.is_file()]
    assert_unseen(issuer, output, run.output, *files, *seen)
