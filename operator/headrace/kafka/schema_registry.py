"""Client of a schema registry with Confluent's REST API, as far as audits need it."""

import base64
import http.client
import json
import ssl
import time
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from headrace.api import AuditSchemas, RegistryAuthenticationType
from headrace.errors import GaveUp
from headrace.kafka.security import read_secret
from headrace.kafka.web import exchange, failure_reason, tls_context

_UNKNOWN_SCHEMA = 40403
"""Error code of an unknown schema id."""
_ATTEMPTS, _PAUSE_S = 3, 1.0
_REFUSED = (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN)


class SchemaRegistry:
    """Registry that an audit asks for schema ids. Not thread-safe."""

    def __init__(self, schemas: AuditSchemas, field: str, secrets: Path | None) -> None:
        """Create the client.

        Args:
            schemas: Address of the registry, and references to its Secrets.
            field: Field of ``schemas`` in the manifest, for messages.
            secrets: Folder of Secrets.
        """
        self._schemas, self._field, self._secrets = schemas, field, secrets

    def unknown(self, ids: Iterable[int]) -> set[int]:
        """Return the schema ids that the registry does not know.

        Raises:
            GaveUp: The registry does not answer, or refuses the user.
            SecretMissing: A Secret, or a key of it, does not exist.
        """
        return {one for one in sorted(set(ids)) if not self._knows(one)}

    def _knows(self, schema_id: int) -> bool:
        path = f"/schemas/ids/{schema_id}"
        status, body = self._get(path)
        if status == http.HTTPStatus.OK:
            return True
        if status == http.HTTPStatus.NOT_FOUND and _error_code(body) == _UNKNOWN_SCHEMA:
            return False
        if status in _REFUSED:
            raise GaveUp(
                f"the schema registry {self._schemas.url} refuses the user ({status}); check "
                f"{self._field}.authentication, and that the user may read schemas"
            )
        raise GaveUp(
            f"the schema registry {self._schemas.url} answers GET {path} with status {status}; "
            f"check that {self._field}.url is the URL of its REST API, and the log of that server"
        )

    def _get(self, path: str) -> tuple[int, bytes]:
        """Return the status and the body of a response. Retry if the server fails."""
        url = f"{self._schemas.url.rstrip('/')}{path}"
        for left in reversed(range(_ATTEMPTS)):
            try:
                status, body = exchange("GET", url, self._headers, self._context)
            except ssl.SSLCertVerificationError as error:
                named = ", ".join(map(str, self._schemas.trusted_certificates))
                raise GaveUp(
                    f"the certificate of the schema registry {self._schemas.url} is refused: "
                    f"{error.verify_message.rstrip('.')}; {self._field}.trustedCertificates "
                    f"({named or 'not set: the system certificates apply'}) must hold the "
                    "authority that signed it"
                ) from None
            except (OSError, http.client.HTTPException, ValueError) as error:
                if not left:
                    raise GaveUp(
                        f"the schema registry {self._schemas.url} {failure_reason(error)}; check "
                        f"{self._field}.url, and that it runs"
                    ) from None
            else:
                if status < http.HTTPStatus.INTERNAL_SERVER_ERROR or not left:
                    return status, body
            time.sleep(_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    @cached_property
    def _secret_values(self) -> dict[str, str]:
        return {
            use.field: read_secret(self._secrets, self._field, use) for use in self._schemas.uses()
        }

    @cached_property
    def _headers(self) -> dict[str, str]:
        found = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        login, secrets = self._schemas.authentication, self._secret_values
        if login is None:
            return found

        def secret(name: str) -> str:
            # Editors and `echo` add a line break, which is no part of a password or token.
            return secrets.get(f"authentication.{name}", "").rstrip("\r\n")

        if login.type is RegistryAuthenticationType.BEARER:
            return found | {"Authorization": f"Bearer {secret('token')}"}
        pair = f"{login.username or secret('usernameFrom')}:{secret('password')}"
        return found | {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    @cached_property
    def _context(self) -> ssl.SSLContext | None:
        if not self._schemas.url.startswith("https:"):
            return None
        trusted = "\n".join(
            text
            for field, text in self._secret_values.items()
            if field.startswith("trustedCertificates")
        )
        try:
            return tls_context(trusted)
        except (ssl.SSLError, ValueError) as error:
            raise GaveUp(
                f"{self._field}.trustedCertificates cannot be used: {error}; it must refer to PEM "
                "files"
            ) from None


def _error_code(body: bytes) -> object:
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    return answer.get("error_code") if isinstance(answer, dict) else None
