"""Options of commands with a verdict: files beside the report, and the format of the log."""

import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import click

from headrace import logs
from headrace.api import MirrorTest
from headrace.cli.screen.options import log_format_option
from headrace.errors import HeadraceError, InvalidSpec, from_exception
from headrace.mirror_test import Result, documents
from headrace.report.junit import junit, junit_without_verdict

Error = TypeVar("Error", bound=HeadraceError)


class ReportOutputs:
    """Signs the report and writes the JUnit file, if the options of the command say so."""

    def __init__(self, junit_file: Path | None, sign_key: Path | None) -> None:
        self._junit_file = junit_file
        self._key = None if sign_key is None else signing_module().read_private_key(sign_key)
        self._test = "headrace"
        if junit_file is not None:
            # A file of an earlier run would look like the result of this run.
            self._write_junit(junit_without_verdict(self._test, "the test has not ended"))

    def begin(self, test: MirrorTest) -> None:
        """Set the test whose name the JUnit file contains."""
        self._test = test.metadata.name
        if self._junit_file is not None and test.spec.load.is_endless:
            raise InvalidSpec(
                f"{self._test}: --junit needs a load that ends, and load.durationSeconds is 0"
            )

    def write(self, result: Result, folder: Path) -> None:
        """Sign the report in ``folder``, and write the JUnit file."""
        if self._key is not None:
            now_ms = round(time.time() * 1000)
            signing_module().sign_report(folder / documents.REPORT, self._key, now_ms)
        self._write_junit(junit(result))

    def without_verdict(self, error: Error) -> Error:
        """Write a JUnit file without a verdict, and return the error."""
        self._write_junit(junit_without_verdict(self._test, str(error)))
        return error

    def _write_junit(self, text: str) -> None:
        if self._junit_file is not None:
            try:
                self._junit_file.parent.mkdir(parents=True, exist_ok=True)
                self._junit_file.write_text(text, encoding="utf-8")
            except OSError as error:
                raise InvalidSpec(
                    f"--junit {self._junit_file} cannot be written: {from_exception(error)}"
                ) from error


def signing_module() -> ModuleType:
    """Return the signing module, which loads cryptography. Few commands need it."""
    from headrace.report import signing  # noqa: PLC0415

    return signing


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--junit`` and ``--sign-key``, as the parameter ``outputs``, and ``--log-format``."""

    @click.option(
        "--junit",
        "junit_file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="File for JUnit XML, with a test case for each check of the verdict.",
    )
    @click.option(
        "--sign-key",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="KEY",
        help="Ed25519 private key in PEM format that signs report.json.",
    )
    @log_format_option
    @wraps(command)
    def with_outputs(
        *, junit_file: Path | None, sign_key: Path | None, log_format: str, **others: Any
    ) -> Any:
        logs.configure(format=log_format)
        return command(outputs=ReportOutputs(junit_file, sign_key), **others)

    return with_outputs
