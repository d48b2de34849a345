"""``headrace test signal``: kills or freezes a driver from another container of its pod."""

import click

from headrace.chaos import process


@click.command(hidden=True)
@click.option(
    "--driver", required=True, metavar="DRIVER", help="Name of the driver, which is its pod's."
)
@click.option(
    "--freeze",
    "freeze_s",
    type=float,
    metavar="SECONDS",
    help="Length of a freeze, in seconds. [default: kill -9]",
)
def command(driver: str, freeze_s: float | None) -> None:
    """Kill or freeze the process of a driver."""
    pid = process.find_driver(driver)
    if freeze_s is None:
        process.kill(pid)
    else:
        process.freeze(pid, freeze_s)
