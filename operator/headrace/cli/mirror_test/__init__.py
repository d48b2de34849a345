"""`headrace verify` and what belongs to it: load, faults, windows, reports."""
