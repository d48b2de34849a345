"""Parts that commands share: options, exit codes, tables and live screens."""
