"""Conversion of encryption and authentication settings of Java clients."""

import re

from headrace.convert.draft import Draft, Setting

_MECHANISMS = {
    "PLAIN": "Plain",
    "SCRAM-SHA-256": "ScramSha256",
    "SCRAM-SHA-512": "ScramSha512",
}
_STORES = ("truststore", "keystore", "key")


def convert_security(draft: Draft, side: str, alias: str, settings: dict[str, Setting]) -> None:
    """Convert the security settings of one cluster to ``tls`` and ``authentication``.

    Passwords are never printed. The manifest names Secrets, and a note lists the required content
    of each.
    """
    left = dict(settings)
    protocol = left.pop("security.protocol", None)
    name = protocol.value.strip().upper() if protocol else "PLAINTEXT"
    encrypted = name in ("SSL", "SASL_SSL")
    if protocol and name not in ("SSL", "SASL_SSL", "SASL_PLAINTEXT", "PLAINTEXT"):
        draft.stop(protocol, "headrace supports only PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL")
    if encrypted:
        _tls(draft, side, alias, left)
    if name.startswith("SASL"):
        _sasl(draft, side, alias, left, protocol)
    for setting in left.values():
        _note_left(draft, setting, encrypted=encrypted)


def _tls(draft: Draft, side: str, alias: str, left: dict[str, Setting]) -> None:
    tls: dict[str, object] = {}
    if trust := left.pop("ssl.truststore.location", None):
        what = f"the certificate authorities in {trust.value}, in PEM (keytool -exportcert -rfc)"
        tls["trustedCertificates"] = [draft.need(f"{alias}-ca", "ca.crt", what)]
    elif trust := left.pop("ssl.truststore.certificates", None):
        what = f"the certificate authorities of {trust.name}, in PEM"
        tls["trustedCertificates"] = [draft.need(f"{alias}-ca", "ca.crt", what)]
    store = left.pop("ssl.keystore.location", None) or left.pop("ssl.keystore.key", None)
    if store:
        where = store.value if store.name.endswith("location") else store.name
        draft.need(f"{alias}-client", "tls.crt", f"the certificate chain in {where}, in PEM")
        draft.need(f"{alias}-client", "tls.key", f"the private key in {where}, in PEM, unencrypted")
        tls["clientCertificate"] = {"secretName": f"{alias}-client"}
    draft.put(f"{side}.tls", tls)


def _sasl(
    draft: Draft, side: str, alias: str, left: dict[str, Setting], protocol: Setting | None
) -> None:
    mechanism, jaas = left.pop("sasl.mechanism", None), left.pop("sasl.jaas.config", None)
    at = mechanism or jaas or protocol
    assert at is not None, "the protocol is SASL"
    kind = _MECHANISMS.get(mechanism.value.strip().upper()) if mechanism else None
    found = re.search(r'username="((?:\\.|[^"\\])*)"', jaas.value) if jaas else None
    if kind is None:
        given = mechanism.value if mechanism else "GSSAPI"
        draft.stop(
            at,
            f"the mechanism {given} is not converted: write authentication of spec.{side} "
            "(Plain, ScramSha256, ScramSha512 or OAuthBearer)",
        )
        return
    if found is None:
        draft.stop(at, f"the username is missing: write authentication of spec.{side}")
        return
    secret = re.search(r'password="(\$\{[^"]*\})"', jaas.value) if jaas else None
    content = f"the password of {found[1]}"
    content += f", given as {secret[1]}" if secret else ", as sasl.jaas.config has it"
    password = draft.need(f"{alias}-credentials", "password", content)
    draft.put(f"{side}.authentication", {"type": kind, "username": found[1], "password": password})
    if "${" in found[1]:
        draft.stop(at, f"headrace resolves no placeholders: write the username of spec.{side}")


def _note_left(draft: Draft, setting: Setting, *, encrypted: bool) -> None:
    key = setting.name.rpartition("ssl.")[2]
    if setting.name.endswith("endpoint.identification.algorithm"):
        if not setting.value.strip():
            draft.note(
                setting,
                "headrace always verifies the host name: the certificates of the brokers must "
                "have the names in bootstrapServers",
            )
    elif key.startswith(_STORES) and encrypted:
        draft.note(setting, "headrace reads certificates and keys from Secrets, in PEM")
    elif key.startswith(_STORES):
        draft.note(setting, "the connection is not encrypted, so no store is needed")
    else:
        draft.note(setting, "headrace's client sets this itself")
