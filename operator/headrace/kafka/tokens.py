"""Tokens of OAUTHBEARER: one cache for each endpoint and client in a process.

A token is replaced when three quarters of its life are over. An endpoint that is away then is
asked again; clients go on with the token that they have for as long as it is good.
"""

import threading
import time
from pathlib import Path
from typing import NamedTuple

from headrace.api import ClusterAccess, OAuth
from headrace.errors import HeadraceError, Retriable
from headrace.kafka.credentials import read_credentials
from headrace.kafka.errors import TokenUnavailable
from headrace.kafka.token_endpoint import Token, request_token
from headrace.logs import get_logger
from headrace.timing import Backoff, Clock

log = get_logger(__name__)

_FIRST_BACKOFF_S, _LAST_BACKOFF_S = 0.5, 5.0


class _Key(NamedTuple):
    """What makes tokens the same."""

    oauth: str
    """All its fields."""
    secrets: Path | None
    """Folders may hold different Secrets of the same names."""


class Tokens:
    """Of one client at one endpoint. Thread-safe."""

    def __init__(self, cluster: ClusterAccess, oauth: OAuth, clock: Clock = time) -> None:
        self._cluster, self._oauth, self._clock = cluster, oauth, clock
        self._token: Token | None = None
        self._asking = threading.Lock()
        self._backoff = Backoff(_FIRST_BACKOFF_S, _LAST_BACKOFF_S)
        self._not_before_s = 0.0
        self.trouble: HeadraceError | None = None
        """Why the last request brought no token; ``None``: it did."""

    def get(self) -> Token:
        """A token that is good; waits for the endpoint where it is time for another.

        Raises ``TokenUnavailable`` and ``SecretMissing`` where there is no good one.
        """
        if (token := self.at_hand()) is not None:
            return token
        with self._asking:
            if (token := self.at_hand()) is not None:  # another thread has asked
                return token
            try:
                return self._ask()
            except Retriable:
                if (token := self.good()) is not None:
                    return token
                raise

    def at_hand(self) -> Token | None:
        """The same without waiting; ``None`` where it is time for another."""
        token = self.good()
        return token if token is not None and self._clock.time() < token.renewed_s else None

    def good(self) -> Token | None:
        """The last one, if it has not expired."""
        token = self._token
        return token if token is not None and self._clock.time() < token.expires_s else None

    def discard(self, token: str | None = None) -> None:
        """Brokers refuse this one, or the last: the next is another."""
        known = self._token
        if known is None or token not in (None, known.value):
            return
        # Not at once: who is refused for another reason must not ask all the time.
        if self._clock.time() - known.received_s > _LAST_BACKOFF_S:
            self._token = None

    def _ask(self) -> Token:
        if self.trouble is not None and self._clock.monotonic() < self._not_before_s:
            raise type(self.trouble)(str(self.trouble))
        field = f"{self._cluster.field}.authentication.oauth"
        try:
            found = read_credentials(self._cluster)
            token = request_token(self._oauth, field, found.client_secret, found.token_trusted)
        except Retriable as error:
            if str(error) != str(self.trouble):
                log.warning("no token", cluster=self._cluster.alias, why=str(error))
            self.trouble = error
            self._not_before_s = self._clock.monotonic() + self._backoff.next_s()
            raise
        if self.trouble is not None:
            log.info("tokens again", cluster=self._cluster.alias)
        self._token, self.trouble, self._not_before_s = token, None, 0.0
        self._backoff.reset()
        return token


_known: dict[_Key, Tokens] = {}
_making = threading.Lock()


def tokens_of(cluster: ClusterAccess) -> Tokens | None:
    """Of a cluster with ``type: OAuthBearer``; ``None`` for any other."""
    login = cluster.spec.authentication
    if login is None or login.oauth is None:
        return None
    key = _Key(login.oauth.model_dump_json(), cluster.secrets)
    with _making:
        if key not in _known:
            _known[key] = Tokens(cluster, login.oauth)
        return _known[key]


def token_trouble(cluster: ClusterAccess) -> TokenUnavailable | None:
    """Why a client of this cluster has no good token now; ``None``: it has, or needs none."""
    tokens = tokens_of(cluster)
    if tokens is None or tokens.good() is not None:
        return None
    return tokens.trouble if isinstance(tokens.trouble, TokenUnavailable) else None
