"""Answers of the source's broker in which a network flips bits that no checksum covers."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.flows import FlowRun, manifest, spec
from support.prometheus import scraped
from support.proxy import Proxy
from support.records import arrived, make_topic, numbered, produce, read, unique

from headrace.control import control
from headrace.sandbox import SandboxCluster
from headrace.sandbox.processes import HOST

RECORDS, MORE = 500, 200
DAMAGED = "headrace_task_damaged_answers_total"


class FlippingProxy(Proxy):
    """A proxy that flips one bit of a batch's base offset, once, and names itself as the broker."""

    def __init__(self, port: int) -> None:
        super().__init__(HOST, port)
        self._advertised = HOST.encode() + port.to_bytes(4)
        self._batch: re.Pattern[bytes] | None = None
        self._bit = 0
        self.changes = self._flip

    def flip(self, base_offset: int, bit: int) -> None:
        """Flip a bit of the lowest byte of the next batch at that offset."""
        self._bit = bit
        start = re.escape(base_offset.to_bytes(8))
        length_epoch_and_magic = rb"\x00...\x00...\x02"
        self._batch = re.compile(start + length_epoch_and_magic, re.DOTALL)

    @property
    def flipped(self) -> bool:
        """Whether the bit was flipped."""
        return self._batch is None

    def _flip(self, data: bytes) -> bytes:
        data = data.replace(self._advertised, HOST.encode() + self.port.to_bytes(4))
        if self._batch is None or (found := self._batch.search(data)) is None:
            return data
        self._batch = None
        changed = bytearray(data)
        changed[found.start() + 7] ^= self._bit
        return bytes(changed)


@pytest.mark.parametrize(
    "mode",
    [
        {"delivery": {"mode": "ExactlyOnce"}},
        {"offsets": {"mode": "Preserved"}},
    ],
    ids=json.dumps,
)
def test_flipped_base_offset_neither_loses_nor_doubles_records(
    *,
    east: SandboxCluster,
    west: SandboxCluster,
    tmp_path: Path,
    wait_until: Callable[..., Any],
    mode: dict[str, Any],
) -> None:
    """Move a batch up, to a hole in the log, and another one down, to before the request."""
    topic = make_topic(spec(east), unique("flipped"), 1)
    copy = f"east.{topic}"
    produce(spec(east), topic, numbered(RECORDS, 1))
    with FlippingProxy(east.broker(1).port) as line:
        flow = manifest(topic, east, west, topic, tasks={"max": 1}, **mode)
        flow["spec"]["source"]["bootstrapServers"] = f"{HOST}:{line.port}"
        with FlowRun(tmp_path, [flow], "--metrics-port=0") as run:
            for written, bit in ((RECORDS, 0x01), (RECORDS + MORE, 0x20)):
                wait_until(lambda written=written: arrived(spec(west), copy) >= written)
                line.flip(written, bit)
                produce(spec(east), topic, numbered(MORE, 1, written))
                wait_until(lambda: line.flipped)
            wait_until(lambda: arrived(spec(west), copy) >= RECORDS + 2 * MORE)
            wait_until(run.ready)
            port = urlsplit(control.request(run.name, "dashboard")["url"]).port
            assert port is not None
            wait_until(
                lambda: [n for name, n in scraped(port).items() if name.startswith(DAMAGED)],
                until=lambda counted: sum(counted) >= 2,
            )
            assert "the broker's answer was damaged" in run.output
    assert read(spec(west), copy) == read(spec(east), topic)
