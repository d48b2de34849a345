"""How commands talk to a running flow: its control socket and the rows that they show."""
