"""Answers of brokers in which a network flips bits that no checksum covers."""

import json
import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.flows import FlowRun, manifest, spec
from support.prometheus import scraped
from support.proxy import Proxy
from support.records import arrived, make_topic, numbered, produce, read, unique

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.control import control
from headrace.errors import Retriable
from headrace.kafka import Admin, Position
from headrace.sandbox import SandboxCluster
from headrace.sandbox.processes import HOST

RECORDS, MORE = 500, 200
DAMAGED = "headrace_task_damaged_answers_total"


class FlippingProxy(Proxy):
    """A proxy that flips one bit of an answer, once, and names itself as the broker."""

    def __init__(self, port: int) -> None:
        super().__init__(HOST, port)
        self._advertised = HOST.encode() + port.to_bytes(4)
        self._before: re.Pattern[bytes] | None = None
        self._bit = 0
        self.changes = self._flip

    def flip(self, before: bytes, bit: int) -> None:
        """Flip a bit of the byte that follows this regular expression in the next answer."""
        self._bit = bit
        self._before = re.compile(before, re.DOTALL)

    def flip_fetched(self, base_offset: int, bit: int) -> None:
        """Flip a bit of the lowest byte of the base offset of the next batch at that offset."""
        start = base_offset.to_bytes(8)
        length_epoch_and_magic = rb"\x00...\x00...\x02"
        lowest = re.escape(start[7:])
        self.flip(re.escape(start[:7]) + b"(?=" + lowest + length_epoch_and_magic + b")", bit)

    def flip_acknowledged(self, topic: str, topic_id: str) -> None:
        """Flip a bit of the base offset in the next answer about partition 0 of this topic."""
        name, id_ = re.escape(topic.encode()), re.escape(b64decode(topic_id + "=="))
        one_without_error = rb"\x02\x00\x00\x00\x00\x00\x00"
        offset_and_no_append_time = rb"(?=.{6}\xff{8})"
        topics = b"(?:" + name + b"|" + id_ + b")"
        self.flip(topics + one_without_error + rb"\x00\x00" + offset_and_no_append_time, 0x08)

    @property
    def flipped(self) -> bool:
        """Whether the bit was flipped."""
        return self._before is None

    def _flip(self, data: bytes) -> bytes:
        data = data.replace(self._advertised, HOST.encode() + self.port.to_bytes(4))
        if self._before is None or (found := self._before.search(data)) is None:
            return data
        self._before = None
        changed = bytearray(data)
        changed[found.end()] ^= self._bit
        return bytes(changed)


@pytest.mark.parametrize(
    "mode",
    [
        {},
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
    """Move a batch up, to a hole in the log, and another one down, to before the request.

    Then acknowledge a batch of the target far after its end. A lane drops answers of the source
    that arrive during a commit. Therefore a flip is repeated until the lane has noticed it.
    """
    topic = make_topic(spec(east), unique("flipped"), 1)
    copy, written = f"east.{topic}", 0

    def copy_more(count: int = MORE) -> None:
        nonlocal written
        produce(spec(east), topic, numbered(count, 1, written))
        written += count
        wait_until(lambda: arrived(spec(west), copy) >= written)

    with (
        FlippingProxy(east.broker(1).port) as line,
        FlippingProxy(west.broker(1).port) as target_line,
    ):
        flow = manifest(topic, east, west, topic, tasks={"max": 1}, **mode)
        flow["spec"]["source"]["bootstrapServers"] = f"{HOST}:{line.port}"
        flow["spec"]["target"]["bootstrapServers"] = f"{HOST}:{target_line.port}"
        with FlowRun(tmp_path, [flow], "--metrics-port=0") as run:

            def noticed() -> int:
                return run.output.count('event="an answer was damaged"')

            copy_more(RECORDS)
            for moves_up in (True, False):
                before = noticed()
                while noticed() == before:
                    line.flip_fetched(written, 0x01 if moves_up else written & -written)
                    copy_more()
                    assert line.flipped
            before = noticed()
            target_line.flip_acknowledged(copy, Admin(spec(west)).describe([copy])[copy].topic_id)
            copy_more()
            wait_until(lambda: target_line.flipped and noticed() > before)
            copy_more()
            wait_until(run.ready)
            port = urlsplit(control.request(run.name, "dashboard")["url"]).port
            assert port is not None
            wait_until(
                lambda: [n for name, n in scraped(port).items() if name.startswith(DAMAGED)],
                until=lambda counted: sum(counted) == noticed(),
            )
            assert "the broker's answer was damaged" in run.output
    assert read(spec(west), copy) == read(spec(east), topic)


def test_topic_is_described_though_a_bit_of_its_name_or_id_is_flipped(east: SandboxCluster) -> None:
    """The client of librdkafka would end the process."""
    topic = make_topic(spec(east), unique("described"), 2)
    described = Admin(spec(east)).describe([topic])
    name, id_ = topic.encode(), b64decode(described[topic].topic_id + "==")
    with FlippingProxy(east.broker(1).port) as line:
        access = ClusterAccess(ClusterSpec(alias="east", bootstrap_servers=f"{HOST}:{line.port}"))
        admin = Admin(access)
        line.flip(re.escape(name[:-1]), 0x04)
        with pytest.raises(Retriable, match="the broker's answer was damaged"):
            admin.describe([topic])
        assert line.flipped
        line.flip(re.escape(id_[:-1]), 0x04)
        assert admin.describe([topic]) == described
        assert line.flipped
        line.flip(re.escape(id_[:-1]), 0x04)
        assert admin.describe([topic]) == described, "the known id is not the one of the answer"


def test_offsets_are_read_again_if_a_bit_of_the_answer_is_flipped(east: SandboxCluster) -> None:
    """The client of librdkafka would end the process, because the answer lacks a partition."""
    topic = make_topic(spec(east), unique("listed"), 2)
    produce(spec(east), topic, numbered(RECORDS, 2))
    ats = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    before_the_count = re.escape(topic.encode()) + rb"(?=\x03\x00{3}[\x00\x01]\x00{2}\xff{8})"
    with FlippingProxy(east.broker(1).port) as line:
        access = ClusterAccess(ClusterSpec(alias="east", bootstrap_servers=f"{HOST}:{line.port}"))
        admin = Admin(access)
        ends = admin.known_ends(ats)
        assert sum(ends.values()) == RECORDS
        line.flip(before_the_count, 0x01)
        assert admin.known_ends(ats) != ends
        assert line.flipped
        line.flip(before_the_count, 0x01)
        assert admin.offsets(ats, Position.LATEST) == ends
        assert line.flipped
