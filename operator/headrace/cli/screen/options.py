"""Options that several commands share: logs, Secrets, confirmation and metrics.

Commands receive Secrets only as a folder, with the layout of Secrets that Kubernetes mounts:
``<name>/<key>``, and ConfigMaps in ``_configmaps``. Passwords are never in command lines,
environment variables or messages.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from headrace import logs
from headrace.api import Secret
from headrace.api.cluster import ConfigMap
from headrace.errors import InvalidSpec

log_format_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--log-format",
    type=click.Choice(logs.FORMATS),
    default=logs.FORMATS[0],
    show_default=True,
    envvar=logs.FORMAT_VARIABLE,
    metavar="FORMAT",
    help=f"Format of the log: {' or '.join(logs.FORMATS)}.",
)


Command = TypeVar("Command", bound=Callable[..., Any])

_PREFIX = "headrace-secrets-"

OF_A_RUN = "Folder of Secrets, DIR/<name>/<key>, instead of Secret documents; read again on change."


def secrets_option(text: str) -> Callable[[Command], Command]:
    """Return the option ``--secrets DIR`` with this help text."""
    folder: Any = click.Path(path_type=Path, exists=True, file_okay=False)
    return click.option("--secrets", type=folder, metavar="DIR", help=text)


@contextmanager
def secrets_folder(
    given: Path | None, documents: Sequence[Secret | ConfigMap]
) -> Iterator[Path | None]:
    """Yield ``given``, or a private folder with ``documents`` that is deleted after the block.

    Raise ``InvalidSpec`` if there are both, because it would be unclear which of them applies.
    """
    _refuse_both(given, documents)
    if given is not None or not documents:
        yield given.resolve() if given is not None else None
        return
    home = _memory()
    _delete_orphans(home)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=home))
    try:
        _write(folder, documents)
        yield folder
    finally:
        shutil.rmtree(folder)


def rewrite_secrets(
    given: Path | None, folder: Path | None, documents: Sequence[Secret | ConfigMap]
) -> None:
    """Write changed ``documents`` into the ``folder`` of a run. Clients notice the changes.

    Raise ``InvalidSpec`` if the run was started with ``--secrets`` or without Secrets.
    """
    _refuse_both(given, documents)
    if documents and folder is None:
        raise InvalidSpec("the manifests have Secret documents now: start the run again")
    if given is None and folder is not None:
        _write(folder, documents)


def _refuse_both(given: Path | None, documents: Sequence[Secret | ConfigMap]) -> None:
    if given is not None and documents:
        names = ", ".join(secret.metadata.name for secret in documents)
        raise InvalidSpec(
            f"the manifest holds Secret documents ({names}), and --secrets names a folder: leave "
            "one of them out"
        )


def _write(folder: Path, documents: Sequence[Secret | ConfigMap]) -> None:
    for secret in documents:
        own = folder / secret.folder
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        for key, value in secret.values.items():
            file = own / key
            if file.exists() and file.read_bytes() == value:
                continue
            draft = own / f".{key}.new"
            draft.touch(mode=0o600)
            draft.write_bytes(value)
            draft.replace(file)  # clients read either the old or the new file, never a mixture


def _memory() -> Path:
    """Return a folder in memory, or the folder for temporary files if there is none."""
    candidates = [os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm", tempfile.gettempdir()]
    return next(
        home
        for candidate in candidates
        if candidate and (home := Path(candidate)).is_dir() and os.access(home, os.W_OK)
    )


def _delete_orphans(home: Path) -> None:
    """Delete folders of processes that were killed."""
    for folder in home.glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def own_command() -> str:
    """Return ``headrace`` if the shell finds this installation by that name, otherwise its path."""
    script = Path(sys.executable).parent / "headrace"
    if shutil.which("headrace") == str(script):
        return "headrace"
    here = Path.cwd()
    return str(script.relative_to(here) if script.is_relative_to(here) else script)


yes_option = click.option("-y", "--yes", is_flag=True, help="Deletion without a question.")


def confirm(deletion: str, *, yes: bool) -> None:
    """Ask for confirmation of a deletion, unless ``yes``. End the command if the answer is no.

    Raises:
        InvalidSpec: There is no terminal to ask on.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidSpec(f"{deletion}: confirm it with --yes, because there is no terminal")
    click.confirm(f"{deletion}?", abort=True)


def metrics_options(pages: str) -> Callable[[Command], Command]:
    """Return a decorator that adds ``--metrics-port`` and ``--metrics-address`` to a command.

    ``pages`` names the served pages in the help.
    """

    def decorated(command: Command) -> Command:
        command = click.option(
            "--metrics-address",
            default="127.0.0.1",
            show_default=True,
            metavar="ADDRESS",
            help="Address on which --metrics-port is served; 0.0.0.0 for all addresses.",
        )(command)
        return click.option(
            "--metrics-port",
            type=click.IntRange(0, 65535),
            metavar="PORT",
            help=f"Port of {pages}; 0 for any free port.",
        )(command)

    return decorated
