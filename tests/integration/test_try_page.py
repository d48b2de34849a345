"""The page that a first-time user follows: its commands run as they are printed, in their order."""

import os
import re
from pathlib import Path

from support.plain_shell import PlainShell

from headrace.sandbox.processes import held_ports

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "try.md").read_text()
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)


def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    """Leave out the demo, which installs and which CI runs by itself."""
    demo, *blocks = BLOCKS
    assert demo == "make demo\n"
    assert len(blocks) >= 6
    shell = PlainShell(tmp_path, runtime=os.environ["XDG_RUNTIME_DIR"])
    with held_ports([None]) as (port,):  # until the script ends: it uses the port late
        script = "".join(blocks).replace("9404", str(port))
        assert script.count(str(port)) == 1
        try:
            shown = shell.run(script)
        finally:
            shell.run("headrace sandbox down || true")
    shown += (shell.folder / "my-flow.log").read_text()
    for expected in (
        r"ReplicationFlow my-flow: valid",
        r"my-flow: stopped by itself after .*: \d records behind",  # heartbeats come while it ends
        r"(?m)^1000$",
        r"(?m)^FLOW +READY",
        r"(?m)^my-flow-source-connector-0 ",
        rf"(?m)^http://127.0.0.1:{port}/$",
        r"my-flow: stopped as it was asked to",
        r"Sandbox default is down",
    ):
        assert re.search(expected, shown), f"{expected}: {shown}"
