"""Commands of ``headrace``. Each command is imported when it is called."""
