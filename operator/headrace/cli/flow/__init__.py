"""Commands for flows on this machine or in a Kubernetes cluster."""
