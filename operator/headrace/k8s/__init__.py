"""The only importer of the Kubernetes client: apply, watch, Leases, status writes."""
