"""Options, exit codes, tables and live screens that several commands share."""
