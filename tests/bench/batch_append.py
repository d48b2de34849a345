"""CPU of the batch mover's target side: gate, patch and append, per GB; nothing is fetched.

``python tests/bench/batch_append.py [GB]``. The target is a process that discards its requests.
Batches are judged, stamped and sent from a ring of memory, as from responses to Fetch. CPU time is
this process's alone; on a busy machine the lowest of several runs is the best estimate.
"""

import resource
import socket
import struct
import sys
import threading
from contextlib import closing, suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from kio.schema.errors import ErrorCode
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.batches import record_batch
from support.fake_broker import Request, framed, metadata_of, served

from headrace.api import ClusterAccess, ClusterSpec, TopicPartition
from headrace.datapath.append import Appender
from headrace.datapath.chunk import judged
from headrace.datapath.producer import Leaders
from headrace.datapath.spans import Outgoing
from headrace.errors import HeadraceError
from headrace.kafka.wire import ClusterClient, EventLoop, ProducerIdentity, split_batches
from headrace.kafka.wire.schemas import read_uvarint

PARTITIONS = 8
RUNS = 3
HELD_BYTES = 16 << 20
SIZES = {
    "1 record of 100 B": (1, 100),
    "16 KiB": (15, 1024),
    "128 KiB": (127, 1024),
    "1 MiB": (1000, 1024),
}
"""Records of a batch, and bytes of each."""


def main() -> None:
    """Print a table."""
    gigabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    table = Table("batches", "core-s/GB", "user", "system", "us/batch", "batches")
    for name, (records, value_bytes) in SIZES.items():
        share = gigabytes if value_bytes > 100 else gigabytes / 20
        runs = [measured(records, value_bytes, int(share * 1e9)) for _ in range(RUNS)]
        user_s, system_s, batches, sent_bytes = min(runs, key=lambda run: run[0] + run[1])
        cpu_s = user_s + system_s
        table.add_row(
            name,
            f"{cpu_s / sent_bytes * 1e9:.3f}",
            f"{user_s / sent_bytes * 1e9:.3f}",
            f"{system_s / sent_bytes * 1e9:.3f}",
            f"{cpu_s / batches * 1e6:.1f}",
            f"{batches:,}",
        )
    Console().print(table)


def measured(records: int, value_bytes: int, total_bytes: int) -> tuple[float, float, int, int]:
    """User and system seconds, batches, bytes."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=throw_away, args=(theirs,), daemon=True)
    process.start()
    port = ours.recv()
    try:
        return append(port, records, value_bytes, total_bytes)
    finally:
        process.terminate()
        process.join()


def append(
    port: int, records: int, value_bytes: int, total_bytes: int
) -> tuple[float, float, int, int]:
    """Send so much, never holding more than HELD_BYTES."""
    spec = ClusterSpec(alias="west", bootstrap_servers=f"127.0.0.1:{port}")
    ring = memoryview(bytearray().join(response(records, value_bytes)))
    sent_bytes = sent_batches = held_bytes = 0

    def release(size: int) -> None:
        nonlocal held_bytes
        held_bytes -= size

    with closing(EventLoop()) as loop, closing(ClusterClient(loop, ClusterAccess(spec))) as cluster:
        appender = Appender(
            loop,
            Leaders(cluster),
            ProducerIdentity(1, 0),
            lambda at, outgoing, base_offset: None,
            failed,
        )
        ats = [TopicPartition("orders", number) for number in range(PARTITIONS)]
        before = resource.getrusage(resource.RUSAGE_SELF)
        while sent_bytes < total_bytes:
            while held_bytes < HELD_BYTES and sent_bytes < total_bytes:
                for at in ats:
                    for one in judged(split_batches(ring).batches, start=0):
                        batch = one.batch
                        size = len(batch.data)
                        outgoing = Outgoing(batch, batch.last_offset + 1, partial(release, size))
                        appender.append(at, outgoing)
                        held_bytes += size
                        sent_bytes += size
                        sent_batches += 1
                appender.flush()
            loop.run_once(0.1)
        while appender.pending:
            loop.run_once(0.1)
        after = resource.getrusage(resource.RUSAGE_SELF)
        appender.close()
    return (
        after.ru_utime - before.ru_utime,
        after.ru_stime - before.ru_stime,
        sent_batches,
        sent_bytes,
    )


def response(records: int, value_bytes: int) -> list[bytearray]:
    """Return the response for one partition: 256 KiB, at least one batch."""
    content = record_batch([b"x" * value_bytes] * records)
    count = max(1, min(64, (256 << 10) // len(content)))
    parts = []
    for number in range(count):
        content[:8] = struct.pack(">q", number * records)
        parts.append(bytearray(content))
    return parts


def failed(at: TopicPartition, error: HeadraceError) -> None:
    """Raise the error: no partition may fail."""
    raise error


def throw_away(pipe: Connection) -> None:
    """Run a broker that leads all partitions."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        pipe.send(port)
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=serve, args=(sock, port), daemon=True).start()


def serve(sock: socket.socket, port: int) -> None:
    """Answer the requests of one connection."""
    room = memoryview(bytearray(64 << 20))
    while True:
        size_bytes = room[:4]
        if not receive(sock, size_bytes):
            return
        content = room[: struct.unpack(">i", size_bytes)[0]]
        if not receive(sock, content):
            return
        key, version, correlation_id = struct.unpack_from(">hhi", content)
        if key == 0:
            sock.sendall(produced(content, correlation_id))
            continue
        request = Request(key, correlation_id, None, b"", version)
        told = dict.fromkeys(range(PARTITIONS), (1, 0))
        sock.sendall(framed(request, served() if key == 18 else metadata_of({1: port}, told)))


def receive(sock: socket.socket, into: memoryview) -> bool:
    """Fill it."""
    with suppress(ConnectionResetError):
        while into:
            if not (count := sock.recv_into(into)):
                return False
            into = into[count:]
    return not into


def produced(content: memoryview, correlation_id: int) -> bytes:
    """Return the response to a request of one topic."""
    (client,) = struct.unpack_from(">h", content, 8)
    place = (
        10 + client + 1 + 1 + 6 + 1
    )  # header's tags, no transactional id, acks, time-out, topics
    name_size, place = read_uvarint(content, place)
    name, place = bytes(content[place : place + name_size - 1]), place + name_size - 1
    count, place = read_uvarint(content, place)
    parts = []
    for _ in range(count - 1):
        index = bytes(content[place : place + 4])
        size, place = read_uvarint(content, place + 4)
        place += size  # with one byte of tags, less the one that is added to the size
        offsets = struct.pack(">hqqq", ErrorCode.none.value, 0, -1, 0)
        parts.append(index + offsets + b"\1\0\0")
    topic = bytes([2, name_size]) + name + bytes([count]) + b"".join(parts) + b"\0"
    body = struct.pack(">i", correlation_id) + b"\0" + topic + struct.pack(">i", 0) + b"\0"
    return struct.pack(">i", len(body)) + body


if __name__ == "__main__":
    main()
