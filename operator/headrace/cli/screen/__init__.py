"""Parts that commands share: options, exit codes, tables, live screens."""
