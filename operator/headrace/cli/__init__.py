"""Commands of headrace. Each command has a module, which is imported when the command is called."""
