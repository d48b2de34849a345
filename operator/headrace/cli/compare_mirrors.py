"""``headrace test compare-mirrors``: runs MirrorMaker 2 and headrace in the same experiments."""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml
from pydantic import ValidationError

from headrace import logs
from headrace.cli.compare_experiments import (
    EXPERIMENTS,
    WORKERS,
    Experiment,
    Flow,
    MirrorMaker2,
    chaos_of,
    load_s,
)
from headrace.cli.sandbox import cluster_document
from headrace.errors import InvalidSpec
from headrace.mirror_test import Result, documents
from headrace.report.pages import (
    ExperimentResult,
    markdown,
    mirror_table,
    recovery,
    side_by_side_page,
)
from headrace.sandbox import ClusterPlan, Sandbox

_NAME = "compared"
_TOGETHER, _TOGETHER_NAMES = "together", "together.json"
_PARTITIONS = 3
_MIRRORS: dict[str, Callable[[Sandbox], Flow | MirrorMaker2]] = {
    "mirror-maker-2": MirrorMaker2,
    "headrace": Flow,
}
_ALL = tuple(experiment.name for experiment in EXPERIMENTS)


@click.command()
@click.option(
    "--experiment",
    "chosen",
    multiple=True,
    type=click.Choice(_ALL),
    metavar="NAME",
    help=f"Experiment: {', '.join(_ALL)}. Repeatable. [default: all but packet-loss]",
)
@click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    type=click.Choice(tuple(_MIRRORS)),
    metavar="NAME",
    help=f"Mirror to run: {' or '.join(_MIRRORS)}. The table takes the other's results from the "
    "folder of reports. Repeatable. [default: both]",
)
@click.option(
    "--together",
    is_flag=True,
    help="All experiments in one load, one fault after the other. This is quicker, but the "
    "verdict is about all of them.",
)
@click.option(
    "--rate",
    type=click.IntRange(min=10),
    default=500,
    show_default=True,
    metavar="NUMBER",
    help="Messages per second to each of two topics.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 9),
    default=3,
    show_default=True,
    metavar="NUMBER",
    help="Number of brokers of each cluster.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("headrace-reports") / _NAME,
    show_default=True,
    metavar="DIR",
    help="Folder of the reports. The table also contains earlier results of this folder.",
)
def command(  # noqa: PLR0917 - click gives them by name
    chosen: tuple[str, ...],
    mirrors: tuple[str, ...],
    together: bool,
    rate: int,
    brokers: int,
    report: Path,
) -> int:
    """Compare a real MirrorMaker 2 and headrace in kafka-mirror-tester's experiments.

    The experiments run one after the other on clusters of this machine. A mirror test judges each
    of them. The results are written to comparison.html and comparison.md.

    An experiment takes about two minutes for each mirror, or seven minutes if MirrorMaker 2 waits
    for a lost worker. packet-loss needs root and affects the whole machine, so it runs only if
    it is named.

    Examples:
      headrace test compare-mirrors
      headrace test compare-mirrors --experiment kill-worker --mirror headrace
    """
    logs.configure("WARNING")
    experiments = [
        one for one in EXPERIMENTS if (one.name in chosen if chosen else not one.is_of_machine)
    ]
    if brokers == 1 and any("broker" in one.name for one in experiments):
        raise InvalidSpec("--brokers 1: no broker can be missed; give 2 or more")
    groups = {_TOGETHER: experiments} if together else {one.name: [one] for one in experiments}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    for name in mirrors or tuple(_MIRRORS):
        plans = [ClusterPlan("east", brokers=brokers), ClusterPlan("west", brokers=brokers)]
        sandbox = Sandbox.start(f"{_NAME}-{os.getpid()}", plans, detached=True)
        try:
            _run_all(sandbox, name, groups, rate, report / name)
        finally:
            sandbox.close()
    write_comparison(report, rate, brokers)
    return 0


def _run_all(
    sandbox: Sandbox,
    name: str,
    groups: Mapping[str, Sequence[Experiment]],
    rate: int,
    folder: Path,
) -> None:
    mirror = _MIRRORS[name](sandbox)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "version").write_text(f"{mirror.name} {mirror.version}")
    for group, experiments in groups.items():
        click.echo(f"{mirror.name}: {', '.join(one.name for one in experiments)} ...", err=True)
        mirror.restore()
        names = [[one.name, len(one.steps(mirror))] for one in experiments]
        if group == _TOGETHER:
            (folder / _TOGETHER_NAMES).write_text(json.dumps(names))
        settle_s = max(one.settle_s for one in experiments)
        test = _test(sandbox, f"{_NAME}-{group}", chaos_of(experiments, mirror), settle_s)
        test["spec"]["load"]["messagesPerSecond"] = rate
        file = folder / f"{group}.yaml"
        file.write_text(yaml.safe_dump(test, sort_keys=False))
        subprocess.run(
            [
                *(sys.executable, "-m", "headrace", "verify", str(file), "--run-commands"),
                *("--report", str(folder / group)),
            ],
            check=False,
        )


def _test(
    sandbox: Sandbox, name: str, steps: Sequence[dict[str, Any]], settle_s: int
) -> dict[str, Any]:
    source, target = sandbox.clusters
    return {
        "apiVersion": "headrace.dev/v1beta1",
        "kind": "MirrorTest",
        "metadata": {"name": name},
        "spec": {
            "source": cluster_document(source),
            "target": cluster_document(target),
            "load": {
                "topics": 2,
                "partitions": _PARTITIONS,
                "durationSeconds": load_s(steps),
            },
            "settleSeconds": settle_s,
            "chaos": list(steps),
        },
    }


def write_comparison(folder: Path, rate: int, brokers: int) -> None:
    """Write the table of all reports in the folder."""
    names = [name for name in _MIRRORS if (folder / name / "version").exists()]
    versions = [(folder / name / "version").read_text() for name in names]
    rows = {one.title: [_outcome(folder / name, one) for name in names] for one in EXPERIMENTS}
    if any((folder / name / _TOGETHER).exists() for name in names):
        rows["These in one load"] = [_whole(folder / name) for name in names]
    notes = [
        f"{time.strftime('%d %B %Y')}, {platform.system()} with {os.cpu_count()} CPUs, all of it "
        f"on one machine: two clusters of {brokers} brokers, {WORKERS} workers; 2 topics of "
        f"{_PARTITIONS} partitions, {rate:,} messages/s each.",
        "A cell: the verdict; what is wrong; the time from the first fault until each partition of "
        "the target has a message that was sent after it; the mirror's own share of the latency, "
        "from a consumer of the source to one of the target: 50 % / 99 % / slowest.",
    ]
    table = mirror_table(versions, rows, notes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comparison.html").write_text(side_by_side_page(table), encoding="utf-8")
    (folder / "comparison.md").write_text(markdown(table), encoding="utf-8")
    click.echo(markdown(table))
    click.echo(f"  page: {folder / 'comparison.html'}")


def _whole(folder: Path) -> ExperimentResult:
    """Return the result of the load that has the faults of all experiments.

    It contains no recoveries, because the rows of the faults contain them.
    """
    found = _read(folder / _TOGETHER)
    if found.result is None:
        return found
    return ExperimentResult(found.result.model_copy(update={"faults": ()}))


def _outcome(folder: Path, experiment: Experiment) -> ExperimentResult:
    """Return the result of an experiment, from its own load or from the load of all experiments."""
    alone = _read(folder / experiment.name)
    whole = _read(folder / _TOGETHER).result
    if alone.result is not None or whole is None:
        return alone
    at, names = 0, json.loads((folder / _TOGETHER_NAMES).read_text())
    for name, steps in names:
        if name == experiment.name and steps:
            return ExperimentResult(None, recovery(whole.faults[at]))
        at += steps
    return alone


def _read(folder: Path) -> ExperimentResult:
    if not folder.exists():
        return ExperimentResult(None)
    try:
        text = (folder / documents.REPORT).read_text(encoding="utf-8")
        return ExperimentResult(Result.model_validate_json(text))
    except (OSError, ValidationError):
        return ExperimentResult(None, "no report")
