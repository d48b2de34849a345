"""``python -m cluster up|down|status``: the real cluster of the end-to-end tests."""

import sys

from cluster.find import real_cluster
from rich.console import Console

from headrace.errors import HeadraceError

USAGE = "usage: python -m cluster up|down|status"


def main(arguments: list[str]) -> None:
    if arguments not in (["up"], ["down"], ["status"]):
        sys.exit(USAGE)
    console = Console(stderr=True)
    try:
        cluster = real_cluster(console)
        if arguments == ["up"]:
            cluster.up()
        elif arguments == ["down"]:
            cluster.down()
        console.print(cluster.status(), soft_wrap=True)
    except HeadraceError as error:
        console.print(str(error), soft_wrap=True, markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)  # the next command finishes or removes a half-made cluster


if __name__ == "__main__":
    main(sys.argv[1:])
