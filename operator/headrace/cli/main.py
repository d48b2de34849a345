"""Entry point: runs a command, and prints every error as a sentence with an exit code."""

import gc
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from headrace import __version__
from headrace.cli.commands import COMMANDS, NOUNS, Command, Noun, extra_of, new_name
from headrace.cli.screen.cluster_options import PLUG_IN, is_plug_in
from headrace.cli.screen.exits import Exit, exit_for
from headrace.errors import HeadraceError, InvalidSpec, from_exception

_NOT_JOINED = "\b"
"""Marker that makes click keep the line breaks of the next paragraph."""
_OF_PLUG_IN = f"""Act on the flows and mirror tests of a Kubernetes cluster.

{_NOT_JOINED}
Examples:
  {PLUG_IN} status -n shop
  {PLUG_IN} task list -A
"""
_COMPLETION = "Shell completion, for bash, zsh and fish: headrace completion --help"


class LazyGroup(click.Group):
    """Group of commands whose modules are imported when a command is called.

    ``headrace --help`` therefore loads no Kafka client.
    """

    def __init__(self, entries: Mapping[str, Command | Noun], **attributes: object) -> None:
        super().__init__(**attributes)  # type: ignore[arg-type]
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names that help and completion list."""
        return [
            name
            for name, entry in self._entries.items()
            if not entry.hidden and (entry.for_cluster or not is_plug_in(ctx))
        ]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or return None if there is no command of this name."""
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        if is_plug_in(ctx) and not (entry.for_cluster or entry.hidden):
            path = " ".join((*ctx.command_path.split()[2:], cmd_name))
            raise InvalidSpec(
                f"`{path}` does not act on a Kubernetes cluster: run `headrace {path}`"
            )
        if isinstance(entry, Noun):
            return _noun(cmd_name, entry)
        module, _, name = entry.place.partition(":")
        gc.disable()  # imports leave no garbage, and a collection takes a tenth of the start
        try:
            found = importlib.import_module(f"headrace.cli.{module}")
        finally:
            gc.enable()
        command: click.Command = getattr(found, name)
        command.hidden = entry.hidden
        _keep_lines_of_examples(command)
        return command

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description. The plug-in of kubectl has a different one."""
        if ctx.parent is not None or not is_plug_in(ctx):
            super().format_help_text(ctx, formatter)
            return
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_OF_PLUG_IN)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lists of commands and of groups."""
        names = self.list_commands(ctx)
        sections = {
            "Commands": [name for name in names if name not in NOUNS],
            "Groups of commands": [name for name in names if name in NOUNS],
        }
        for title, listed in sections.items():
            if listed:
                with formatter.section(title):
                    formatter.write_dl([(name, self._entries[name].summary) for name in listed])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without importing its module."""
        found = [
            CompletionItem(name, help=self._entries[name].summary)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)


def _keep_lines_of_examples(command: click.Command) -> None:
    """Keep the line breaks of examples in help texts, which click would remove."""
    if isinstance(command, click.Group):
        for one in command.commands.values():
            _keep_lines_of_examples(one)
    marked = f"\n\n{_NOT_JOINED}\nExamples:\n"
    text = inspect.cleandoc(command.help or "")
    command.help = text.replace("\n\nExamples:\n", marked)


def _noun(name: str, noun: Noun) -> LazyGroup:
    return LazyGroup(noun.commands, name=name, help=noun.description, short_help=noun.summary)


@click.version_option(__version__, prog_name="headrace")
def _group() -> None:
    """Copy Kafka topics between clusters, and prove that the copies are right.

    Examples:
      headrace demo
      headrace run flow.yaml
      headrace status
    """


group = click.command(
    cls=LazyGroup,
    entries=COMMANDS,
    name="headrace",
    epilog=_COMPLETION,
    context_settings={"help_option_names": ["-h", "--help"]},
)(_group)
_keep_lines_of_examples(group)


def main(argv: Sequence[str] | None = None, name: str = "headrace") -> int:
    """Run one command and return its exit code (``cli/screen/exits.py``)."""
    words = tuple(sys.argv[1:] if argv is None else argv)
    if renamed := new_name(words):
        old, new = renamed
        click.echo(f"{name}: `{name} {old}` is now `{name} {new}`", err=True)
        return Exit.USAGE
    try:
        result = group.main(args=words, prog_name=name, standalone_mode=False)
    except click.exceptions.Abort:
        return 130  # exit code of shells for Ctrl-C
    except Exception as error:  # noqa: BLE001 - the last place that can make it a sentence
        return _report(error, name, words)
    return int(result or 0)


def _report(error: Exception, name: str, words: Sequence[str]) -> Exit:
    """Print an error as a sentence and return its exit code."""
    match error:
        case click.ClickException():
            error.show()
            return Exit.USAGE
        case HeadraceError():
            _say(str(error))
            return exit_for(error)
        case OSError():
            # A full disk or a missing file permission is no defect of headrace.
            _say(str(from_exception(error)))
            return Exit.FAILED
        case ModuleNotFoundError() if extra := extra_of(error.name or ""):
            _say(_missing(error.name or "", extra, name, words))
            return Exit.USAGE
        case _:
            # A defect of headrace. The trace is for developers, the message for users.
            if os.environ.get("HEADRACE_LOG_LEVEL", "").upper() == "DEBUG":
                traceback.print_exception(error)
            _say(f"{from_exception(error)} (HEADRACE_LOG_LEVEL=DEBUG shows where)")
            return Exit.FAILED


def _missing(package: str, extra: str, name: str, words: Sequence[str]) -> str:
    command = " ".join((name, *words[: 2 if words and words[0] in NOUNS else 1]))
    return (
        f"`{command}` needs the package {package}, which is not installed. It comes with the extra "
        f"`{extra}` of headrace: install headrace again with it, as in `pip install '.[{extra}]'` "
        "in a clone"
    )


def _say(sentence: str) -> None:
    logs = sys.modules.get("headrace.logs")  # a command without a log does not load structlog
    line = logs.message(sentence) if logs else f"headrace: {sentence}"
    with suppress(OSError):  # standard error may itself be the file that cannot be written
        click.echo(line, err=True)


def entry() -> None:
    """Run the console script ``headrace``."""
    sys.exit(main())


def kubectl_entry() -> None:
    """Run as a plug-in of kubectl. Its commands act on the flows of a cluster."""
    sys.exit(main(name=PLUG_IN))
