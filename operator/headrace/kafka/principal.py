"""Whom brokers take a client for, as ACLs name it, where no rule of theirs maps names."""

from headrace.api import ClusterAccess
from headrace.kafka.certificate import UNREADABLE, subject_of
from headrace.kafka.credentials import read_credentials
from headrace.kafka.errors import SecretMissing


def principal_of(cluster: ClusterAccess) -> str:
    """The user's name, or the subject of the client certificate; without either ``ANONYMOUS``."""
    spec = cluster.spec
    if spec.authentication is not None and spec.authentication.username:
        return f"User:{spec.authentication.username}"
    if spec.tls is None or (own := spec.tls.client_certificate) is None:
        return "User:ANONYMOUS"
    try:
        return f"User:{subject_of(read_credentials(cluster).certificate)}"
    except (SecretMissing, *UNREADABLE):
        return f"User:<subject of {own.certificate_key} of Secret {own.secret_name}>"
