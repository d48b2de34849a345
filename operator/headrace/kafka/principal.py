"""Whom brokers take a client for, as ACLs name it, where no rule of theirs maps names."""

from headrace.api import ClusterAccess
from headrace.errors import HeadraceError
from headrace.kafka.certificate import UNREADABLE, subject_of
from headrace.kafka.credentials import read_credentials
from headrace.kafka.errors import SecretMissing
from headrace.kafka.tokens import tokens_of


def principal_of(cluster: ClusterAccess) -> str:
    """The user's name, or the subject of the token or the client certificate; without any of them
    ``ANONYMOUS``."""
    spec = cluster.spec
    if spec.authentication is not None and spec.authentication.username:
        return f"User:{spec.authentication.username}"
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
        return f"User:<subject of {own.certificate_key} of Secret {own.secret_name}>"
