"""A TCP proxy that can be cut, slowed down, change answers, hold a request back or swallow data.

Only the one client of a server that uses the proxy is affected.
"""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Queue
from typing import Self


class Proxy:
    """A proxy on a port of 127.0.0.1 that passes all data on, until it is cut.

    ``delay_s`` is the delay each way. Delayed data is held, as on a long line.
    """

    def __init__(self, host: str, port: int, *, delay_s: float = 0.0) -> None:
        self._server = (host, port)
        self._delay_s = delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_cut = False
        self.holds: Callable[[bytes], bool] = lambda _: False
        """Condition on a client's data. If it is true, the connection waits for ``release``."""
        self.changes: Callable[[bytes], bytes] = lambda data: data
        """Change to the server's data, which keeps its length."""
        self.held = threading.Event()
        """Set once something is held back."""
        self._released = threading.Event()
        self._open: set[socket.socket] = set()
        self._swallowed: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._listener.close()

    def cut(self) -> None:
        """End all connections and every new one."""
        self.is_cut = True
        self.release()
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def lead_to(self, port: int) -> None:
        """End all connections, and lead new ones to another server."""
        self.cut()
        self._server = (self._server[0], port)
        self.mend()

    def mend(self) -> None:
        """Let new connections through."""
        self.is_cut = False

    def release(self) -> None:
        """Release the data that is held back."""
        self._released.set()

    def swallow(self) -> None:
        """Drop all further data of the present connections, which stay open."""
        self._swallowed |= self._open

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_cut:
                client.close()
                continue
            server = socket.create_connection(self._server)
            self._open |= {client, server}
            for pair in ((client, server), (server, client)):
                line: Queue[tuple[float, bytes]] = Queue()
                threading.Thread(target=self._take_in, args=(pair[0], line), daemon=True).start()
                arguments = (line, *pair, pair[0] is client)
                threading.Thread(target=self._give_out, args=arguments, daemon=True).start()

    def _take_in(self, source: socket.socket, line: Queue[tuple[float, bytes]]) -> None:
        data = b"..."
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            line.put((time.monotonic() + self._delay_s, data))

    def _give_out(
        self,
        line: Queue[tuple[float, bytes]],
        source: socket.socket,
        target: socket.socket,
        to_server: bool,
    ) -> None:
        with suppress(OSError):
            while (entry := line.get())[1]:
                due_s, data = entry
                time.sleep(max(0.0, due_s - time.monotonic()))
                if to_server and self.holds(data):
                    self.held.set()
                    self._released.wait()
                if source not in self._swallowed:
                    target.sendall(data if to_server else self.changes(data))
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
