"""The source connector and its tasks: split, copy, commit, observe, release."""
