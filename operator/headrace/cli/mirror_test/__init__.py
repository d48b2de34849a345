"""``headrace verify`` and its parts: load, faults, windows and reports."""
