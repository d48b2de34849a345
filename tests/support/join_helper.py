"""The helper in C, compiled for these tests even if this environment has it."""

import ctypes
import importlib.util
import struct
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from crc32c import crc32c

from headrace.datapath.chunk import Joiner
from headrace.datapath.resources import shared_loop
from headrace.kafka.wire.native import LIBRARY, Native, native
from headrace.kafka.wire.stamp import Helper

ROOT = Path(__file__).parents[2]


def compiled(options: str = "") -> Helper:
    """Return the function that joins batches, as ``hatch_build.py`` compiles it."""
    return compiled_native(options).join


@cache
def compiled_native(options: str = "") -> Native:
    """Return all functions in C, as ``hatch_build.py`` compiles them."""
    script = build_script()
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, LIBRARY.name)
        command = [*script.compiler(), *options.split()]
        with patch.object(script, "compiler", lambda: command):
            why = script.compile_helper(LIBRARY.with_name("native.c"), library)
        assert not why, f"these tests need a C compiler (cc): {why}"
        helper = native(library)
    assert helper is not None
    return helper


def use_helper(monkeypatch: pytest.MonkeyPatch, helper: Helper | None) -> None:
    """Join the batches of the next lanes with another C helper, or without one."""
    thread = shared_loop()
    joiner = Joiner(thread.buffers, thread.memory, thread.loop.now_s, lambda: helper)
    monkeypatch.setattr(thread, "joiner", joiner)


class BrokenHelper:
    """A helper that changes a byte of the last record's value.

    A fault of a compiler or a processor may do that. The checksum is computed from the changed
    data.
    """

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *arguments: int) -> int:
        """Join a batch by ``headrace_join_2`` of ``native.c``, then change a byte."""
        size, out = compiled()(*arguments), arguments[5]
        if size:
            self.calls += 1
            data = (ctypes.c_uint8 * size).from_address(out)
            data[size - 2] ^= 1  # its headers are one byte
            struct.pack_into(">I", data, 17, crc32c(bytes(data)[21:]))
        return size


def build_script() -> Any:
    """Return ``hatch_build.py``, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
