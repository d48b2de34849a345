"""What commands share: options, exit codes, tables, live screens."""
