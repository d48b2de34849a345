"""From an earlier owner to this one: fence it, read its progress and its tail, begin there."""
