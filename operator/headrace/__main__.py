"""``python -m headrace``: the command, for processes that headrace starts itself."""

from headrace.cli.main import entry

entry()
