"""Connections to a cluster's listeners, tried one by one: who accepts them, answers, speaks TLS."""

import socket
import ssl

from headrace.api import ClusterAccess

_TIMEOUT_S = 2.0
_API_VERSIONS = bytes([0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255])
"""A request for them in version 0, without a client id: every broker answers it, before a login."""

Server = tuple[str, int]


def bootstrap_servers(cluster: ClusterAccess) -> list[str]:
    """Its bootstrap servers."""
    return [server.strip() for server in cluster.bootstrap_servers.split(",")]


def _address(server: str) -> Server:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


def shown(server: Server) -> str:
    """For people."""
    return f"{server[0]}:{server[1]}"


def first_listening(cluster: ClusterAccess) -> Server | None:
    """The first of the bootstrap servers that takes connections."""
    for address in map(_address, bootstrap_servers(cluster)):
        try:
            socket.create_connection(address, _TIMEOUT_S).close()
        except OSError:
            continue
        return address
    return None


def why_unreachable(server: str) -> str:
    """Why a bootstrap server accepts no connection, as a sentence."""
    host = _address(server)[0]
    try:
        socket.create_connection(_address(server), _TIMEOUT_S).close()
    except socket.gaierror as error:
        return f"the name {host} does not resolve ({error.strerror})"
    except TimeoutError:
        return (
            f"{server} does not answer within {_TIMEOUT_S:.0f} s (a firewall, or a wrong address)"
        )
    except ConnectionRefusedError:
        return f"{server} refuses connections (no broker listens there)"
    except OSError as error:
        return f"{server} cannot be reached ({error.strerror})"
    return f"{server} listens again"


def silent_servers(cluster: ClusterAccess) -> list[str]:
    """Those of the bootstrap servers that accept connections and answer nothing."""
    return [
        server
        for server in dict.fromkeys(bootstrap_servers(cluster))
        if _is_silent(_address(server), tls=cluster.spec.tls is not None)
    ]


def _is_silent(server: Server, *, tls: bool) -> bool:
    try:
        connection = socket.create_connection(server, _TIMEOUT_S)
    except OSError:
        return False
    try:
        if tls:
            connection = _unverified().wrap_socket(connection, server_hostname=server[0])
        connection.sendall(_API_VERSIONS)
        connection.recv(1)
    except TimeoutError:
        return True
    except (OSError, ValueError):
        return False
    finally:
        connection.close()
    return False


def speaks_tls(server: Server) -> bool:
    """Whether it shakes hands, with whatever certificate."""
    try:
        shake_hands(_unverified(), server)
    except (OSError, ValueError):
        return False
    return True


def _unverified() -> ssl.SSLContext:
    """Encrypts with whoever answers."""
    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    return anything


def shake_hands(context: ssl.SSLContext, server: Server) -> None:
    """Raises ``OSError``, of which ``ssl.SSLError`` is one."""
    with (
        socket.create_connection(server, _TIMEOUT_S) as connection,
        context.wrap_socket(connection, server_hostname=server[0]),
    ):
        pass
