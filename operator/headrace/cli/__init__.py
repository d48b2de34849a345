"""The commands: ``headrace`` finds one module a command, by its name."""
