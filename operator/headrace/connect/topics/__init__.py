"""The topics of a flow: found, made, configured, deleted; headrace's own logs in topics."""
