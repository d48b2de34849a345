"""How many bytes this machine's TCP connections have received, as the kernel counts them.

They are read by sock_diag(7), as ``ss -ti`` does, without brokers, drivers or a proxy.
"""

import socket
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

_SOCK_DIAG_BY_FAMILY = 20
_DUMP = 0x301
"""NLM_F_REQUEST | NLM_F_DUMP."""
_INFO = 2
"""INET_DIAG_INFO: struct tcp_info."""
_ESTABLISHED = 1 << 1
_BYTES_RECEIVED = 128
"""Offset of tcpi_bytes_received in struct tcp_info."""
_HEADER, _REQUEST, _MESSAGE = struct.Struct("=IHHII"), struct.Struct("=BBBxI48x"), 72
_DONE = 3


def received(pids: Iterable[int]) -> Counter[tuple[int, int]]:
    """Return the received bytes of open connections, by process and remote port."""
    owners = {inode: pid for pid in pids for inode in _sockets(pid)}
    found: Counter[tuple[int, int]] = Counter()
    for port, inode, count in _connections():
        if inode in owners:
            found[owners[inode], port] += count
    return found


def _sockets(pid: int) -> Iterator[int]:
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(file.readlink())
        except FileNotFoundError:
            continue  # it was closed
        if target.startswith("socket:["):
            yield int(target[8:-1])


def _connections() -> Iterator[tuple[int, int, int]]:
    """Port of the other side, inode, bytes received."""
    request = _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 1 << (_INFO - 1), _ESTABLISHED)
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as netlink:  # NETLINK_SOCK_DIAG
        netlink.sendall(header + request)
        while True:
            data = netlink.recv(1 << 20)
            while data:
                length, type, *_ = _HEADER.unpack_from(data)
                if type == _DONE:
                    return
                assert type == _SOCK_DIAG_BY_FAMILY, f"netlink answers with type {type}"
                yield _connection(data[_HEADER.size : length])
                data = data[(length + 3) & ~3 :]


def _connection(message: bytes) -> tuple[int, int, int]:
    (port,) = struct.unpack_from("!H", message, 6)
    (inode,) = struct.unpack_from("=I", message, 68)
    at = _MESSAGE
    while at < len(message):
        length, type = struct.unpack_from("=HH", message, at)
        if type == _INFO:
            (count,) = struct.unpack_from("=Q", message, at + 4 + _BYTES_RECEIVED)
            return port, inode, count
        at += (length + 3) & ~3
    return port, inode, 0
