"""Communication of commands with a running flow."""
