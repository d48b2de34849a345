"""Resources of this machine: folders, locks, child processes.

Cached files are in ``cache_home()``, and state is in ``state_home()``. ``spawn`` starts a child
process that ends with this process. A ``ForkServer`` starts many similar processes.
"""

from headrace.host.files import cache_home, file_lock, state_home, write_whole
from headrace.host.fork_server import ForkedProcess, ForkServer
from headrace.host.parent_death_signal import spawn

__all__ = [
    "ForkServer",
    "ForkedProcess",
    "cache_home",
    "file_lock",
    "spawn",
    "state_home",
    "write_whole",
]
