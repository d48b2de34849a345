"""``headrace demo``: starts two Kafka clusters and a flow, and runs a mirror test."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import yaml
from rich.console import Console

from headrace import logs
from headrace.cli.screen.options import own_command
from headrace.control import control
from headrace.errors import Fatal, GaveUp
from headrace.host import spawn
from headrace.sandbox import ClusterPlan, Sandbox
from headrace.toolchain.preflight import DEMO_DATA

_NAME = "demo"
_READY_TIMEOUT_S = 60.0
_KILL_AT_PERCENT = 50
_KILL_WINDOW_PERCENT = (30, 70)


@click.command()
@click.option(
    "--messages",
    type=click.IntRange(min=1_000),
    default=1_000_000,
    show_default=True,
    metavar="NUMBER",
    help="Number of test messages.",
)
@click.option("--keep", is_flag=True, help="Clusters and flow run until `sandbox down demo`.")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    default=Path("headrace-reports") / _NAME,
    show_default=True,
    metavar="DIR",
    help="Folder of the report.",
)
def command(messages: int, keep: bool, report: Path) -> int:
    """Replicate between two real Kafka clusters on this machine, and prove that nothing is lost.

    The demo starts the clusters `east` and `west`, a flow with two drivers, and a mirror test with
    3 topics of 8 partitions. It kills a driver in the middle of the test. At the end it prints the
    verdict, which is Passed if no message is missing or duplicated, and the path of the report.

    Examples:
      headrace demo
      headrace demo --messages 100000 --keep
    """
    logs.configure("WARNING")
    console = Console(stderr=True, highlight=False)
    console.print("[bold]1/4[/] Starting two Kafka clusters, east and west ...")
    clusters = [ClusterPlan("east"), ClusterPlan("west")]
    with Sandbox.start(_NAME, clusters, detached=keep, disk_bytes=DEMO_DATA) as sandbox:
        manifest = sandbox.folder / "demo.yaml"
        manifest.write_text(_manifest(sandbox, messages))
        console.print(f"    the flow and its test: {manifest}", soft_wrap=True)

        console.print("[bold]2/4[/] Starting the flow with two drivers ...")
        run = _start_flow(sandbox, manifest, keep)
        try:
            _wait_until_ready(run, sandbox)
            console.print(
                f"[bold]3/4[/] Testing it with {messages:,} messages; "
                f"a driver is killed at {_KILL_AT_PERCENT} % ..."
            )
            code = _verify(manifest, report)
        finally:
            if not keep:
                _stop(run)
        console.print("[bold]4/4[/] Reading the outcome ...")
        _check_kill(report)
        console.print(f"    the report: {report.resolve() / 'report.html'}", soft_wrap=True)
        if keep:
            console.print(_next_commands(sandbox), soft_wrap=True, markup=False)
    return code


def _manifest(sandbox: Sandbox, messages: int) -> str:
    """Return a manifest that works with `headrace run` and `headrace verify`."""
    east, west = sandbox.cluster("east"), sandbox.cluster("west")
    flow = {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "ReplicationFlow",
        "metadata": {"name": _NAME},
        "spec": {
            "source": {"alias": "east", "bootstrapServers": east.bootstrap_servers},
            "target": {"alias": "west", "bootstrapServers": west.bootstrap_servers},
            "topics": {"include": [f"{_NAME}-.*"]},
            "drivers": {"replicas": 2},
        },
    }
    test = {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "MirrorTest",
        "metadata": {"name": _NAME},
        "spec": {
            "flowName": _NAME,
            "load": {
                "topics": 3,
                "partitions": 8,
                "producers": 2,
                "messages": messages,
                "messagesPerSecond": 5_000,
                "messageSizeBytes": 1_024,
            },
            "chaos": [{"atPercent": _KILL_AT_PERCENT, "action": "KillDriver"}],
            "budgets": {"duplicated": 0},
        },
    }
    return yaml.safe_dump_all([flow, test], sort_keys=False)


def _start_flow(sandbox: Sandbox, manifest: Path, keep: bool) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "headrace", "run", str(manifest), "--metrics-port", "0"]
    with _flow_log(sandbox).open("wb") as log:
        death = None if keep else signal.SIGTERM
        run = spawn(command, at_parents_death=death, stdout=log, stderr=log)
    if keep:
        sandbox.adopt(run.pid, "the flow (headrace run)")
    return run


def _flow_log(sandbox: Sandbox) -> Path:
    return sandbox.folder / "flow.log"


def _wait_until_ready(run: "subprocess.Popen[bytes]", sandbox: Sandbox) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while True:
        if run.poll() is not None:
            raise Fatal(
                f"the flow ended with code {run.returncode}: "
                f"{_flow_log(sandbox).read_text().strip().splitlines()[-1]} "
                f"(all of it: {_flow_log(sandbox)})"
            )
        if _NAME in control.running_flows():
            conditions = control.request(_NAME, "status").get("conditions", [])
            if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                return
        if time.monotonic() > deadline:
            raise GaveUp(
                f"the flow was not ready within {_READY_TIMEOUT_S:.0f} s; "
                f"its log: {_flow_log(sandbox)}"
            )
        time.sleep(0.1)


def _verify(manifest: Path, report: Path) -> int:
    command = [sys.executable, "-m", "headrace", "verify", str(manifest), "--report", str(report)]
    return subprocess.run(command, check=False).returncode


def _check_kill(report: Path) -> None:
    """Raise an error unless a driver was killed in the middle of the load."""
    try:
        document = json.loads((report / "report.json").read_text())
    except FileNotFoundError:
        raise GaveUp(f"there is no report in {report}: see the logs there") from None
    low, high = _KILL_WINDOW_PERCENT
    percents = [fault.get("percent") for fault in document["faults"]]
    if not any(percent is not None and low <= percent <= high for percent in percents):
        raise Fatal(
            f"the driver was to be killed between {low} and {high} % of the messages, "
            f"the report says {percents or 'nothing'}"
        )


def _stop(run: "subprocess.Popen[bytes]") -> None:
    run.terminate()
    try:
        run.wait(10)
    except subprocess.TimeoutExpired:
        run.kill()
        run.wait()


def _next_commands(sandbox: Sandbox) -> str:
    name, headrace = sandbox.name, own_command()
    return (
        "Left running. Next:\n"
        f"  {headrace} flow dashboard {_NAME}\n"
        f"  echo hello | {headrace} sandbox produce {_NAME}-hello --sandbox {name}\n"
        f"  {headrace} sandbox consume east.{_NAME}-hello --from-beginning --max-messages 1 "
        f"--sandbox {name}\n"
        f"  {headrace} status {_NAME}\n"
        f"  {headrace} sandbox down {name}"
    )
