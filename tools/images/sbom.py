"""Contents of the images, and their licences: ``make sbom``."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.errors import Fatal
from images.catalogue import Image

# Anchore's syft, from PyPI, pinned by hash; uv keeps it in its cache.
_SYFT = Path(__file__).with_name("syft.txt")


def describe(image: Image, archive: Path) -> tuple[Path, Path]:
    """Write ``<name>-<version>.spdx.json`` and ``.licenses.tsv`` next to the archive.

    Raises Fatal if syft fails.
    """
    spdx = archive.with_suffix(".spdx.json")
    uv = str(Path(sys.executable).with_name("uv"))
    syft = [uv, "run", "--quiet", "--no-project", "--isolated"]
    syft += ["--with-requirements", str(_SYFT), "--", "syft", "scan", f"docker-archive:{archive}"]
    syft += ["--quiet", "--output", f"spdx-json={spdx}"]
    syft += ["--source-name", image.name, "--source-version", image.tag.split(":")[1]]
    done = subprocess.run(syft, check=False)
    if done.returncode:
        raise Fatal(f"syft could not read {archive}; the reason is above")
    licences = archive.with_suffix(".licenses.tsv")
    licences.write_text("".join(_rows(json.loads(spdx.read_text()))))
    return spdx, licences


def _rows(document: dict[str, Any]) -> Iterator[str]:
    """Name, version and licence of each package, tab-separated."""
    yield "package\tversion\tlicence\n"
    found = {
        (package["name"], package.get("versionInfo", ""), _licence(package))
        for package in document["packages"]
        if package.get("primaryPackagePurpose") != "CONTAINER"
    }
    for row in sorted(found):
        yield "\t".join(row) + "\n"


def _licence(package: dict[str, Any]) -> str:
    """Return the licence that the package declares, or the concluded one."""
    known = [package.get("licenseDeclared"), package.get("licenseConcluded")]
    return next((one for one in known if one and one not in ("NONE", "NOASSERTION")), "unknown")
