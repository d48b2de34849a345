"""How a command talks to a running flow."""
