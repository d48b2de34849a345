"""Resources of this machine: folders, locks, children that end with their parent.

Cached files go to ``cache_home()``, state to ``state_home()``. ``spawn`` starts a child that does
not outlive this process, and a ``ForkServer`` starts many of one kind.
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
