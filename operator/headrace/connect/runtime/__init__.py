"""Common parts of a Worker's units: herder interface, ownership, life cycle and context."""
