"""``headrace signal``: kills or freezes the driver of a pod, from another container of the pod."""

import click

from headrace.chaos import process


@click.command(hidden=True)
@click.option("--driver", required=True, help="Its name, which is its pod's.")
@click.option("--freeze", "freeze_s", type=float, help="Seconds to stop it for. [default: kill -9]")
def command(driver: str, freeze_s: float | None) -> None:
    """Signal the process of that driver."""
    pid = process.find_driver(driver)
    if freeze_s is None:
        process.kill(pid)
    else:
        process.freeze(pid, freeze_s)
