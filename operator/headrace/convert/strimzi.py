"""Conversion of Strimzi's ``KafkaMirrorMaker2``. Each mirror becomes a flow."""

from collections.abc import Mapping
from typing import Any

from headrace.api.manifest_errors import Key
from headrace.api.manifests import Document
from headrace.api.pods import PodTemplate
from headrace.convert.client_security import convert_security
from headrace.convert.draft import Draft, Setting, alias_of
from headrace.convert.mirror_maker import convert_client_setting, convert_settings
from headrace.convert.result import Converted
from headrace.convert.strimzi_fields import check_fields
from headrace.errors import InvalidSpec

GROUP = "kafka.strimzi.io"
KIND = "KafkaMirrorMaker2"

_POD = {info.alias or name for name, info in PodTemplate.model_fields.items()}
_PATTERNS = {
    "topicsPattern": "topics",
    "topicsExcludePattern": "topics.exclude",
    "topicsBlacklistPattern": "topics.exclude",
    "groupsPattern": "groups",
    "groupsExcludePattern": "groups.exclude",
    "groupsBlacklistPattern": "groups.exclude",
}
_PLACED = {"replicas", "resources", "template", "clusters", "mirrors", "target", "connectCluster"}
_REASONS = {
    "version": "a flow has no Kafka version: `headrace check` prints the requirements of brokers",
    "image": "the image is headrace's own",
    "rack": "a driver detects its zone itself, and reads from brokers there",
    "jvmOptions": "drivers run without a JVM",
    "jmxOptions": "drivers run without a JVM",
    "metricsConfig": "drivers serve metrics for Prometheus without configuration",
    "logging": "set drivers.logLevel",
    "tracing": "headrace sends no traces",
    "livenessProbe": "the operator sets the probes of drivers",
    "readinessProbe": "the operator sets the probes of drivers",
    "externalConfiguration": "headrace resolves no placeholders: values go into Secrets",
    "clientRackInitImage": "a driver detects its zone itself",
}
_CONNECT = "headrace uses no Kafka Connect, so it needs no group and no topics of Connect"
_MECHANISMS = {
    "plain": "Plain",
    "scram-sha-256": "ScramSha256",
    "scram-sha-512": "ScramSha512",
}
_CONNECTORS = ("sourceConnector", "checkpointConnector", "heartbeatConnector")


def convert_strimzi(
    document: Document, data: Mapping[str, Any], path: tuple[Key, ...]
) -> list[Converted]:
    """Return a flow for each mirror of the object.

    Raises:
        InvalidSpec: The object has no mirrors, a mirror names a missing cluster, or a field has a
            wrong type.
    """
    check_fields(document, data, path)
    return _Strimzi(document, data, path).flows()


class _Strimzi:
    """``KafkaMirrorMaker2`` object, with the lines of its values."""

    def __init__(self, document: Document, data: Mapping[str, Any], path: tuple[Key, ...]) -> None:
        self._document, self._path, self._file = document, path, document.file
        self._metadata: Mapping[str, Any] = data.get("metadata") or {}
        self._spec: Mapping[str, Any] = data.get("spec") or {}

    def flows(self) -> list[Converted]:
        mirrors = self._spec.get("mirrors") or []
        if not mirrors:
            raise self._refuse(("mirrors",), "has no mirrors, so there is nothing to copy")
        return [self._flow(index, mirror, len(mirrors)) for index, mirror in enumerate(mirrors)]

    def _setting(self, path: tuple[Key, ...], value: object, name: str = "") -> Setting:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        shown = name or ".".join(str(key) for key in path if isinstance(key, str))
        return Setting(shown, text, self._document.line((*self._path, "spec", *path)))

    def _refuse(self, path: tuple[Key, ...], sentence: str) -> InvalidSpec:
        line = self._document.line((*self._path, "spec", *path))
        return InvalidSpec(f"{self._file}:{line}: {KIND}: {sentence}")

    def _cluster(
        self, alias: object, path: tuple[Key, ...]
    ) -> tuple[Mapping[str, Any], tuple[Key, ...]]:
        for index, cluster in enumerate(self._spec.get("clusters") or []):
            if cluster.get("alias") == alias:
                return cluster, ("clusters", index)
        raise self._refuse(path, f"spec.clusters has no cluster with the alias {alias}")

    def _flow(self, index: int, mirror: Mapping[str, Any], count: int) -> Converted:
        here: tuple[Key, ...] = ("mirrors", index)
        source_at: tuple[Key, ...]
        target_at: tuple[Key, ...]
        if mirror.get("source"):
            source, source_at = mirror["source"], (*here, "source")
            target, target_at = self._spec.get("target") or {}, ("target",)
        else:
            source, source_at = self._cluster(mirror.get("sourceCluster"), (*here, "sourceCluster"))
            target, target_at = self._cluster(mirror.get("targetCluster"), (*here, "targetCluster"))
        line = self._document.line((*self._path, "spec", *here))
        name = str(self._metadata.get("name", "mirror"))
        draft = Draft(self._file, name if count == 1 else f"{name}-{source.get('alias')}", line)
        draft.spec |= {"source": {}, "target": {}, "topics": {"include": [".*"]}}
        self._side(draft, "source", source, source_at)
        self._side(draft, "target", target, target_at)
        settings: dict[str, Setting] = {}
        for connector in _CONNECTORS:
            self._connector(draft, mirror, here, connector, settings)
        for field, value in mirror.items():
            if field in _PATTERNS:
                settings[_PATTERNS[field]] = self._setting((*here, field), value)
            elif field not in (*_CONNECTORS, "source", "sourceCluster", "targetCluster"):
                draft.note(self._setting((*here, field), value), "headrace has no counterpart")
        convert_settings(draft, settings)
        self._drivers(draft)
        return draft.finish(self._kept_metadata())

    def _kept_metadata(self) -> dict[str, Any]:
        labels = {
            key: value
            for key, value in (self._metadata.get("labels") or {}).items()
            if not key.startswith("strimzi.io/")
        }
        namespace = self._metadata.get("namespace")
        return {
            **({"namespace": namespace} if namespace else {}),
            **({"labels": labels} if labels else {}),
        }

    def _drivers(self, draft: Draft) -> None:
        if "replicas" in self._spec:
            draft.put("drivers.replicas", self._spec["replicas"])
        if "resources" in self._spec:
            draft.put("drivers.resources", self._spec["resources"])
        for part, value in (self._spec.get("template") or {}).items():
            for field, inner in (value or {}).items():
                setting = self._setting(("template", part, field), inner)
                if part == "pod" and field in _POD:
                    draft.put(f"drivers.podTemplate.{field}", inner)
                elif part == "connectContainer" and field == "env":
                    draft.put("drivers.env", inner)
                else:
                    draft.note(setting, "the operator creates the pods of drivers itself")
        for field, value in self._spec.items():
            if field not in _PLACED:
                reason = _REASONS.get(field, "headrace has no counterpart")
                draft.note(self._setting((field,), value), reason)

    def _side(
        self, draft: Draft, side: str, cluster: Mapping[str, Any], at: tuple[Key, ...]
    ) -> None:
        line = self._document.line((*self._path, "spec", *at))
        alias = alias_of(self._file, line, str(cluster.get("alias")))
        draft.put(f"{side}.alias", alias)
        draft.put(f"{side}.bootstrapServers", str(cluster.get("bootstrapServers", "")))
        if cluster.get("tls") is not None:
            draft.put(f"{side}.tls", self._tls(draft, cluster["tls"], (*at, "tls")))
        if authentication := cluster.get("authentication"):
            self._authentication(draft, side, authentication, (*at, "authentication"))
        security = {}
        for name, value in (cluster.get("config") or {}).items():
            setting = self._setting((*at, "config", name), value, f"{at[0]}.config.{name}")
            if name.startswith(("ssl.", "sasl.", "security.")):
                security[name] = setting
            elif ".storage." in name or name.startswith(("plugin.", "offset.flush", "rest.")):
                draft.note(setting, _CONNECT)
            elif name == "exactly.once.source.support":
                convert_settings(draft, {name: setting})
            else:
                convert_client_setting(draft, setting, name)
        if security:
            held = {key: draft.spec[side].get(key) for key in ("tls", "authentication")}
            convert_security(draft, side, alias, security)
            draft.spec[side] |= {key: value for key, value in held.items() if value is not None}
        known = {"alias", "bootstrapServers", "tls", "authentication", "config"}
        for field, value in cluster.items():
            if field not in known:
                draft.note(self._setting((*at, field), value), _CONNECT)

    def _tls(self, draft: Draft, tls: Mapping[str, Any], at: tuple[Key, ...]) -> dict[str, Any]:
        trusted = []
        for index, one in enumerate(tls.get("trustedCertificates") or []):
            key = one.get("certificate", "ca.crt")
            trusted.append(draft.need(one["secretName"], key, "a certificate authority, in PEM"))
            if "pattern" in one:
                draft.note(
                    self._setting((*at, "trustedCertificates", index, "pattern"), one["pattern"]),
                    f"headrace reads the key ca.crt of Secret {one['secretName']}: list further "
                    "keys, if there are some, in tls.trustedCertificates",
                )
        return {"trustedCertificates": trusted} if trusted else {}

    def _authentication(
        self, draft: Draft, side: str, found: Mapping[str, Any], at: tuple[Key, ...]
    ) -> None:
        kind = found.get("type")
        setting = self._setting((*at, "type"), kind)
        if kind == "tls" and (own := found.get("certificateAndKey")):
            certificate, key = own["certificate"], own["key"]
            draft.need(own["secretName"], certificate, "the certificate chain, in PEM")
            draft.need(own["secretName"], key, "the private key, in PEM")
            tls = draft.spec[side].setdefault("tls", {})
            tls["clientCertificate"] = {
                "secretName": own["secretName"],
                "certificateKey": certificate,
                "privateKeyKey": key,
            }
        elif kind in _MECHANISMS and (secret := found.get("passwordSecret")):
            password = draft.need(secret["secretName"], secret["password"], "the password")
            value = {"type": _MECHANISMS[kind], "username": found.get("username")}
            draft.put(f"{side}.authentication", value | {"password": password})
        elif kind == "oauth" and found.get("clientSecret") and found.get("tokenEndpointUri"):
            secret = found["clientSecret"]
            oauth = {
                "tokenEndpoint": found["tokenEndpointUri"],
                "clientId": found.get("clientId"),
                "clientSecret": draft.need(secret["secretName"], secret["key"], "the secret"),
            }
            scope = {"scope": found["scope"]} if found.get("scope") else {}
            draft.put(f"{side}.authentication", {"type": "OAuthBearer", "oauth": oauth | scope})
            for field in found.keys() - {
                "type",
                "tokenEndpointUri",
                "clientId",
                "clientSecret",
                "scope",
            }:
                left = self._setting((*at, field), found[field])
                draft.note(left, "headrace's OAuth client has no such setting")
        else:
            draft.stop(
                setting,
                f"authentication of type {kind} is not converted: write authentication of "
                f"spec.{side} (Plain, ScramSha256, ScramSha512 or OAuthBearer), or a client "
                "certificate in its tls",
            )

    def _connector(
        self,
        draft: Draft,
        mirror: Mapping[str, Any],
        here: tuple[Key, ...],
        name: str,
        settings: dict[str, Setting],
    ) -> None:
        connector = mirror.get(name) or {}
        at = (*here, name)
        for field, value in connector.items():
            setting = self._setting((*at, field), value)
            paused = (field, value) == ("pause", True)
            if field == "config":
                for key, inner in (value or {}).items():
                    known = settings.get(key)
                    given = self._setting((*at, "config", key), inner, key)
                    if known and known.value != given.value and key != "tasks.max":
                        draft.note(given, f"{name} differs from another connector, which counts")
                    else:
                        settings[key] = given
            elif field == "tasksMax" and value is not None:
                before = settings.get("tasks.max")
                if before is None or int(before.value) < int(value):
                    settings["tasks.max"] = setting
            elif paused or (field == "state" and value in ("paused", "stopped")):
                self._paused(draft, name, setting, "stopped" if value == "stopped" else "paused")
            elif field == "autoRestart":
                if isinstance(value, dict) and (not value.get("enabled", True) or len(value) > 1):
                    draft.note(setting, "headrace always restarts failed tasks, with a back-off")
            elif field not in ("state", "pause", "tasksMax"):
                draft.note(setting, "headrace has no counterpart")

    def _paused(self, draft: Draft, name: str, setting: Setting, how: str) -> None:
        if name == "sourceConnector":
            draft.put("state", how.capitalize())
        else:
            section = "heartbeats" if name == "heartbeatConnector" else "checkpoints"
            draft.put(f"{section}.enabled", False)
            draft.note(setting, f"a flow cannot pause its {section}: they are disabled")
