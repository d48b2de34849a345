"""Entry point: finds the command, turns every error into one sentence and an exit code."""

import gc
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

import click

from headrace import __version__
from headrace.cli.screen.exits import Exit, exit_for
from headrace.errors import HeadraceError, InvalidSpec, from_exception

COMMANDS = {
    "demo": "real brokers on this machine, a flow, a mirror test, a verdict",
    "validate": "check manifests and say every mistake",
    "check": "check that clusters have the rights and settings that flows need",
    "run": "run replication flows on this machine",
    "status": "print the status of running flows",
    "tasks": "list the connectors and tasks of running flows",
    "describe": "print everything about a task",
    "restart": "restart a task",
    "move": "move a task to another driver",
    "pause": "let a flow rest",
    "resume": "go on with a paused flow",
    "reset": "copy partitions again from the start",
    "rebuild": "delete a copy with preserved offsets, and make it again",
    "groups": "show where consumer groups would go on at the target",
    "failover": "go on at the target: drain, stop, fence, set the groups",
    "reverse": "the flow back, after a fail-over",
    "import": "go on where a MirrorMaker 2 stopped",
    "export": "let a MirrorMaker 2 go on where a flow stopped",
    "scale": "change the number of drivers of a run",
    "dashboard": "open the dashboard of a run in a browser",
    "verify": "run a mirror test and give a verdict",
    "compare-mirrors": "MirrorMaker 2 and headrace through the same experiments",
    "end-load": "end the load of a mirror test, and judge what was sent",
    "report": "open the report of a mirror test of a cluster",
    "sandbox": "real Kafka clusters on this machine",
    "operator": "reconcile the objects of a Kubernetes cluster",
}
HIDDEN = {"driver", "chaos", "rehearse", "signal"}  # started by headrace, not by people
_FLOW_VERBS = ("status", "tasks", "describe", "restart", "move", "pause", "resume", "scale")
_ASK_BROKERS = ("check", "reset", "rebuild", "groups", "failover", "reverse")
_PLACES = {
    **{verb: f"flow.flow_verbs:{verb}" for verb in _FLOW_VERBS},
    **{verb: f"flow.{verb}" for verb in _ASK_BROKERS},
    "import": "flow.mirror_maker:import_",
    "export": "flow.mirror_maker:export",
    "dashboard": "flow.dashboard",
    **{name: f"mirror_test.{name}" for name in ("verify", "report", "chaos", "rehearse")},
    "end-load": "mirror_test.end_load",
    "compare-mirrors": "compare.compare_mirrors",
    "sandbox": "sandbox.sandbox",
    "signal": "screen.signal",
}
"""Where a command is, if not in the module of its name: its module, and its name there."""
EXTRAS = {
    "verify": "spark",
    "report": "operator,spark",
    "compare-mirrors": "spark,sandbox",
    "sandbox": "sandbox",
    "demo": "sandbox",
    "operator": "operator",
    "chaos": "operator",
    "rehearse": "operator",
}
"""The extra of the distribution that a command needs; ``driver`` where none is named."""


class LazyGroup(click.Group):
    """Imports a command's module when it is called: ``headrace --help`` loads no Kafka client."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, as help lists them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one."""
        if cmd_name not in COMMANDS and cmd_name not in HIDDEN:
            return None
        module, _, name = _PLACES.get(cmd_name, cmd_name).partition(":")
        gc.disable()  # modules leave no garbage, and to look for some is a tenth of a start
        try:
            found = importlib.import_module(f"headrace.cli.{module}")
        except ModuleNotFoundError as error:
            extra = EXTRAS.get(cmd_name, "driver")
            raise InvalidSpec(
                f"`headrace {cmd_name}` needs the package {error.name}, which is not installed: "
                f"pip install 'headrace[{extra}]'"
            ) from error
        finally:
            gc.enable()
        command: click.Command = getattr(found, name or "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headrace")
def group() -> None:
    """Kafka replication flows, and proof that nothing was lost, doubled or reordered."""


def main(argv: Sequence[str] | None = None, name: str = "headrace") -> int:
    """Run one command and return its exit code (``cli/screen/exits.py``)."""
    try:
        result = group.main(args=argv, prog_name=name, standalone_mode=False)
    except click.exceptions.Abort:
        return 130  # Ctrl-C where a command has nothing to finish: the shell's own convention
    except click.ClickException as error:
        error.show()
        return Exit.USAGE
    except HeadraceError as error:
        click.echo(f"headrace: {error}", err=True)
        return exit_for(error)
    except OSError as error:
        # A full disk, a file without rights: nothing that a report of ours could correct.
        _say(f"headrace: {from_exception(error)}")
        return Exit.FAILED
    except Exception as error:  # noqa: BLE001 - the last place that can make it a sentence
        # A defect of headrace: a developer gets the trace, a user gets a message.
        if os.environ.get("HEADRACE_LOG_LEVEL", "").upper() == "DEBUG":
            traceback.print_exc()
        click.echo(
            f"headrace: {from_exception(error)} (HEADRACE_LOG_LEVEL=DEBUG shows where)",
            err=True,
        )
        return Exit.FAILED
    return int(result or 0)


def _say(sentence: str) -> None:
    with suppress(OSError):  # standard error itself may be what cannot be written
        click.echo(sentence, err=True)


def entry() -> None:
    """What the console script calls."""
    sys.exit(main())


def kubectl_entry() -> None:
    """As a plug-in of kubectl: ``kubectl headrace tasks`` is about the flows of its cluster."""
    sys.exit(main(name="kubectl headrace"))
