"""The verbs for running flows, of this machine or of a cluster."""
