"""Topics of a flow: discovery, creation, settings, deletion, and headrace's internal topics."""
