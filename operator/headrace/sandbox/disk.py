"""Is there room on the disk?"""

import shutil
from pathlib import Path

from headrace.errors import InvalidSpec


def require_disk(folder: Path, needed_bytes: int, purpose: str) -> None:
    """Raise InvalidSpec when ``folder``, made if absent, has less than ``needed_bytes`` free."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise InvalidSpec(
            f"{purpose} needs {needed_bytes / 1e9:.1f} GB of free disk for its data, and there are "
            f"{free / 1e9:.1f} GB in {folder}. Make room, or set XDG_STATE_HOME to a folder on a "
            "larger disk"
        )
