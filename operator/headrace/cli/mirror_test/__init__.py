"""Commands for mirror tests: runs, faults, audits and reports."""
