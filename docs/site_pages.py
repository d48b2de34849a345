"""A hook of MkDocs: the pages of the site are the clone's pages, at their places there.

``README.md`` and others are outside ``docs``, as are manifests and programs that pages name: the
site has a copy of each file that a page links to.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    ROOT / "charts" / "headrace" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of ``docs`` (MkDocs' ``on_files``)."""
    theme = [file for file in files if file.src_dir != config.docs_dir]
    scripts = (ROOT / str(script) for script in config.extra_javascript)
    paths = dict.fromkeys([*PAGES, *_linked(), *scripts])
    ours = (
        File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path))
        for path in paths
    )
    return Files([*theme, *ours])


def _linked() -> Iterator[Path]:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)", page.read_text()):
            if (path := (page.parent / link).resolve()).is_file():
                yield path
