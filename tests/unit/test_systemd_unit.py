"""The example of a systemd unit agrees with its comments and its page."""

import shlex
from configparser import ConfigParser
from pathlib import Path

from click.testing import CliRunner

from headrace.cli.run import command

UNIT = Path(__file__).parents[2] / "examples" / "systemd" / "headrace@.service"


def test_the_unit_starts_reloads_and_stops_a_run() -> None:
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    service = unit["Service"]
    _, verb, folder, options = shlex.split(service["ExecStart"])
    assert (verb, folder, options) == ("run", "/etc/headrace/%i", "$HEADRACE_OPTIONS")
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > 5, "a stop takes at most 5 s"
    assert service["RestartPreventExitStatus"] == "3"
    named = [option for option in ("--metrics-port", "--secrets") if option in UNIT.read_text()]
    text = CliRunner().invoke(command, ["--help"]).output
    assert [option for option in named if option not in text] == []
