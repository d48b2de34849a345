"""The status of a flow, judged from its units. Pure."""
