"""Parts that units of a Worker share: the port of the herder, ownership, life cycle, context."""
