"""Source connector and source tasks: discovery, split into tasks, copy, and stored progress."""
