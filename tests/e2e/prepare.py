"""``python -m e2e.prepare demo | tests``: builds images and programs, side by side."""

import subprocess
import sys
from pathlib import Path

from cluster.build import WEB
from cluster.find import real_cluster
from cluster.program import Program, have_programs
from rich.console import Console
from support.helm import HELM, helm_on_path
from support.prometheus import PROMETHEUS, PROMTOOL

from headrace.errors import Fatal, HeadraceError

IMAGES = (sys.executable, "-m", "images", "test")
TOOLS = Path(__file__).parents[2] / "tools"
MONITORING = (PROMETHEUS, PROMTOOL)


def programs() -> tuple[Program, ...]:
    """Return the programs that are compiled for the cluster and for its pods."""
    return (*real_cluster().programs, WEB, *(() if helm_on_path() else (HELM,)))


def main(purpose: str) -> None:
    """Fetch images and compile programs side by side, which takes little longer than one."""
    console = Console(stderr=True, force_terminal=False)  # the images' lines come between its own
    with subprocess.Popen(IMAGES, cwd=TOOLS) as images:
        try:
            have_programs((*programs(), *(MONITORING if purpose == "tests" else ())), console)
        except BaseException:
            images.terminate()
            raise
    if images.returncode:
        raise Fatal("the images could not be built: the reason is above")


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except HeadraceError as error:
        sys.exit(f"headrace: {error}")
