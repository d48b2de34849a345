"""The least that a relay costs: the same bytes from one socket to another, without Kafka."""

import resource
import socket
import threading

_CHUNK = 1 << 20


def core_s_per_gb(total_bytes: int = 2_000_000_000) -> float:
    """Return the CPU of this thread, which receives and sends; both ends run in other threads."""
    near, source = _connected()
    far, target = _connected()
    threads = [
        threading.Thread(target=_fill, args=(source, total_bytes), daemon=True),
        threading.Thread(target=_drain, args=(target,), daemon=True),
    ]
    for thread in threads:
        thread.start()
    room = memoryview(bytearray(_CHUNK))
    before = resource.getrusage(resource.RUSAGE_THREAD)
    while count := near.recv_into(room):
        far.sendall(room[:count])
    after = resource.getrusage(resource.RUSAGE_THREAD)
    for one in (near, source, far):
        one.close()
    for thread in threads:
        thread.join()
    target.close()
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used / total_bytes * 1e9


def _connected() -> tuple[socket.socket, socket.socket]:
    """Connect two sockets by TCP over loopback, as brokers do; Unix sockets would cost less."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        return one, listener.accept()[0]


def _fill(sock: socket.socket, total_bytes: int) -> None:
    chunk = bytes(_CHUNK)
    for _ in range(total_bytes // _CHUNK):
        sock.sendall(chunk)
    sock.shutdown(socket.SHUT_WR)


def _drain(sock: socket.socket) -> None:
    room = bytearray(_CHUNK)
    while sock.recv_into(room):
        pass
