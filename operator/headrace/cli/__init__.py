"""The command ``headrace``: one module a command, found by its name."""
