"""``headrace driver``: one driver process; the herder starts it."""

import socket
from pathlib import Path

import click

from headrace import logs
from headrace.connect import DriverIdentity
from headrace.driver import run_driver


@click.command(hidden=True)
@click.option("--link", type=int, required=True, help="File descriptor of the line to the herder.")
@click.option("--name", required=True)
@click.option("--incarnation", required=True)
@click.option("--lease", type=float, required=True, help="Seconds of silence that lose the units.")
@click.option("--secrets", type=click.Path(path_type=Path), help="Folder of Secrets.")
def command(link: int, name: str, incarnation: str, lease: float, secrets: Path | None) -> None:
    """Host the units that the herder at the other end of the line assigns."""
    logs.configure()
    with socket.socket(fileno=link) as line:
        run_driver(line, DriverIdentity(name, incarnation), lease, secrets)
