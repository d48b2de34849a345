"""A token endpoint: signed JWTs for clients that know their secret, and the key for brokers."""

import base64
import json
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from headrace.sandbox import Authority, SandboxCluster

HOST = "127.0.0.1"
CLIENT, SECRET = "headrace client", 'canary-7351 "secret\\" %2B+; ü'
AUDIENCE, ISSUER = "kafka", "tests"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class TokenEndpoint:
    """Over TLS, and its keys in plain text. ``stop`` and ``start`` keep its ports."""

    def __init__(self) -> None:
        self.lifetime_s = 3600.0
        self.answer: tuple[int, bytes] | None = None
        """Answer that replaces the regular one."""
        self.secret = SECRET
        self.issued: list[str] = []
        self.asked: list[Mapping[str, list[str]]] = []
        authority = Authority("issuer")
        self.certificate = authority.certificate
        self._identity = authority.issue("issuer", address=HOST)
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._ports = [0, 0]
        self._servers: list[ThreadingHTTPServer] = []
        self.start()

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self._ports[0]}/token"

    @property
    def keys_url(self) -> str:
        return f"http://{HOST}:{self._ports[1]}/keys"

    def start(self) -> None:
        """Answer, again or for the first time."""
        for place in range(2):
            if len(self._servers) > place:
                continue
            server = ThreadingHTTPServer((HOST, self._ports[place]), _handler(self))
            if place == 0:
                server.socket = self._context().wrap_socket(server.socket, server_side=True)
            self._ports[place] = server.server_address[1]
            self._servers.append(server)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._servers.clear()

    def broker_properties(self) -> dict[str, str]:
        """Return the properties of a secure cluster that accepts these tokens besides passwords."""
        listener = "listener.name.sasl_ssl"
        return {
            "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512",
            f"{listener}.oauthbearer.sasl.jaas.config": f"{MODULE} required;",
            f"{listener}.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
            "sasl.oauthbearer.jwks.endpoint.url": self.keys_url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "connections.max.reauth.ms": "3600000",
        }

    def java_options(self) -> str:
        """Return the addresses that brokers' JVMs may request (CVE-2025-27817)."""
        return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.keys_url}"

    def keys(self) -> bytes:
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256"}
        key |= {"n": _number(numbers.n), "e": _number(numbers.e)}
        return json.dumps({"keys": [key]}).encode()

    def token(self, login: str, form: Mapping[str, list[str]]) -> tuple[int, bytes]:
        """Return the status and body that answer a ``POST``."""
        self.asked.append(form)
        if self.answer is not None:
            return self.answer
        kind, _, encoded = login.partition(" ")
        id, _, secret = base64.b64decode(encoded).decode().partition(":")
        if (kind, unquote_plus(id), unquote_plus(secret)) != ("Basic", CLIENT, self.secret):
            why = "Client authentication failed. Trace ID: " + str(time.time())
            return 401, json.dumps({"error": "invalid_client", "error_description": why}).encode()
        assert form["grant_type"] == ["client_credentials"]
        token = self.issue(*form.get("scope", []))
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s}
        return 200, json.dumps(answer).encode()

    def issue(self, *scopes: str) -> str:
        now = time.time()
        claims = {"iss": ISSUER, "sub": CLIENT, "aud": AUDIENCE, "iat": int(now)}
        claims |= {"exp": int(now + self.lifetime_s), "scope": " ".join(scopes)}
        parts = ({"alg": "RS256", "kid": "1", "typ": "JWT"}, claims)
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        self.issued.append(f"{signed}.{_encoded(signature)}")
        return self.issued[-1]

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            pem = Path(folder, "server.pem")
            pem.write_bytes(self._identity[1] + self._identity[0])
            context.load_cert_chain(pem)
        return context


@contextmanager
def running_token_endpoint() -> Iterator[TokenEndpoint]:
    endpoint = TokenEndpoint()
    try:
        yield endpoint
    finally:
        endpoint.stop()


def secrets_of(endpoint: TokenEndpoint) -> dict[str, dict[str, bytes]]:
    """Return the Secrets that manifests name."""
    return {
        "issuer-ca": {"ca.crt": endpoint.certificate},
        "issuer-client": {"secret": f"{SECRET}\n".encode()},
    }


def by_token(cluster: SandboxCluster, endpoint: TokenEndpoint, **oauth: Any) -> dict[str, Any]:
    """Return the cluster's fields in a manifest, with tokens over TLS."""
    ca = {"secretName": f"{cluster.name}-ca", "key": "ca.crt"}
    return {
        "alias": cluster.name,
        "bootstrapServers": cluster.sasl_servers,
        "tls": {"trustedCertificates": [ca]},
        "authentication": authentication(endpoint.url, **oauth),
    }


def authentication(url: str, **oauth: Any) -> dict[str, Any]:
    return {
        "type": "OAuthBearer",
        "oauth": {
            "tokenEndpoint": url,
            "clientId": CLIENT,
            "clientSecret": {"secretName": "issuer-client", "key": "secret"},
            "scope": "replicate kafka",
            "extensions": {"logicalCluster": "lkc 1"},
            "trustedCertificates": [{"secretName": "issuer-ca", "key": "ca.crt"}],
        }
        | oauth,
    }


def _handler(endpoint: TokenEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, endpoint.keys())

        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            login = self.headers.get("Authorization", "")
            self._answer(*endpoint.token(login, parse_qs(form)))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _number(number: int) -> str:
    return _encoded(number.to_bytes((number.bit_length() + 7) // 8, "big"))
