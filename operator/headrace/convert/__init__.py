"""Converts configurations of MirrorMaker 2, of Strimzi, or of an earlier version to manifests.

``read`` recognizes a file by its content. ``write`` returns the manifests as YAML, with a comment
for each setting that has no counterpart.
"""

from headrace.convert.files import read
from headrace.convert.result import Converted, write

__all__ = ["Converted", "read", "write"]
