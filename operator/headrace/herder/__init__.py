"""The Herder port implemented: ``standalone`` coordinates local driver processes.

``store`` keeps the units, in the API server's place; ``link`` is the driver's end of the line,
``control`` the socket by which people and tests reach a running flow.
"""

from headrace.herder.standalone import StandaloneHerder

__all__ = ["StandaloneHerder"]
