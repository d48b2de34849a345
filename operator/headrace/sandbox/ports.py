"""Free ports on 127.0.0.1."""

import errno
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headrace.errors import Fatal, InvalidSpec

HOST = "127.0.0.1"
LOWEST = 10_000


@contextmanager
def held_ports(given: list[int | None]) -> Iterator[list[int]]:
    """A free port for each None, and the given ones: InvalidSpec names the one that is in use.

    They are held while the ``with`` block lasts: nobody who picks a port as we do can get them, and
    our brokers can, as sockets with SO_REUSEADDR share a port as long as one of them listens.
    """
    with ExitStack() as held:
        ports = dict[int, int]()
        for index, port in enumerate(given):
            if port is not None:
                if port in ports.values():
                    raise InvalidSpec(f"port {port} is asked for twice: give each broker its own")
                ports[index] = _hold_given(port, held)
        for index, port in enumerate(given):
            if port is None:
                ports[index] = _hold_any(held)
        yield [ports[index] for index in range(len(given))]


def _hold_given(port: int, held: ExitStack) -> int:
    holder = held.enter_context(socket.socket())
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((HOST, port))
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had: {error.strerror}"
        raise InvalidSpec(
            f"port {port} on {HOST} {why}. Give another one, or none: free ports are then picked"
        ) from error
    return port


def _hold_any(held: ExitStack) -> int:
    """A port below those that the kernel gives to outgoing connections.

    One of theirs could be taken by any client while its broker is down, and then the broker could
    not be started again.
    """
    lowest_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    below = range(LOWEST, lowest_ephemeral) or range(LOWEST, 65536)
    for port in random.sample(below, k=len(below)):
        holder = socket.socket()
        try:
            holder.bind((HOST, port))  # without SO_REUSEADDR: no other holder is overlooked
        except OSError:
            holder.close()
            continue
        held.enter_context(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return port
    raise Fatal(f"no port between {LOWEST} and {lowest_ephemeral} on {HOST} is free")
