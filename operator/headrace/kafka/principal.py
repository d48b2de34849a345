"""Whom brokers take a client for, as ACLs name it, where no rule of theirs maps names."""

from headrace.api import ClusterAccess
from headrace.api.cluster import Authentication
from headrace.errors import HeadraceError
from headrace.kafka.certificate import UNREADABLE, subject_of
from headrace.kafka.credentials import read_credentials
from headrace.kafka.errors import SecretMissing
from headrace.kafka.tokens import tokens_of


def principal_of(cluster: ClusterAccess) -> str:
    """Return the user's name, or the subject of the token or of the client certificate.

    Without any of them it is ``ANONYMOUS``.
    """
    spec = cluster.spec
    if spec.authentication is not None and spec.authentication.oauth is None:
        return f"User:{_username(cluster, spec.authentication)}"
    if (tokens := tokens_of(cluster)) is not None:
        try:
            if subject := tokens.get().subject:
                return f"User:{subject}"
        except HeadraceError:
            pass  # each request of this cluster fails with the reason
        return "User:<claim sub of the token>"
    if spec.tls is None or (own := spec.tls.client_certificate) is None:
        return "User:ANONYMOUS"
    try:
        return f"User:{subject_of(read_credentials(cluster).certificate)}"
    except (SecretMissing, *UNREADABLE):
        return f"User:<subject of the certificate in Secret {own.secret_name}>"


def _username(cluster: ClusterAccess, login: Authentication) -> str:
    if login.username_from is None:
        return login.username or ""
    try:
        return read_credentials(cluster).username
    except SecretMissing:
        return f"<{login.username_from.key} of Secret {login.username_from.secret_name}>"
