"""`headrace sandbox`: real clusters on this machine, their flows, records and faults."""
