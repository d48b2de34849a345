"""Volumes of driver pods, and where they are mounted."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from headrace.api.cluster import SecretKey
from headrace.api.model import Flag, Label, Model, Name, Rule, RuleViolation, Text, Whole
from headrace.api.quantities import A_QUANTITY, Quantity

AsInKubernetes = dict[str, JsonValue]
"""Type of Kubernetes whose fields are not listed here."""
FileMode = Annotated[Whole, Field(ge=0, le=0o777)]


class KeyToPath(Model):
    """Kubernetes' KeyToPath: the file of a key."""

    key: SecretKey
    """Key in the data of the Secret or ConfigMap."""
    path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Path of the file in the volume."""
    mode: FileMode | None = None
    """Permissions of the file."""


class FilesOfKeys(Model):
    """Common part of Kubernetes' SecretVolumeSource and ConfigMapVolumeSource."""

    items: Annotated[tuple[KeyToPath, ...], Field(max_length=100)] = ()
    """Keys to mount. Default: all keys, each as a file with its name."""
    default_mode: FileMode | None = None
    """Permissions of the files. Default: 420, which is 0644 in octal."""
    optional: Flag = False
    """Whether the pod also starts if the object or a key does not exist."""


class SecretVolume(FilesOfKeys):
    """Kubernetes' SecretVolumeSource."""

    secret_name: Name
    """Name of the Secret."""


class ConfigMapVolume(FilesOfKeys):
    """Kubernetes' ConfigMapVolumeSource."""

    name: Name
    """Name of the ConfigMap."""


class ClaimVolume(Model):
    """Kubernetes' PersistentVolumeClaimVolumeSource."""

    claim_name: Name
    """Name of the PersistentVolumeClaim."""
    read_only: Flag = False
    """Whether all mounts are read-only."""


class EmptyDirVolume(Model):
    """Kubernetes' EmptyDirVolumeSource."""

    medium: Literal["", "Memory"] | None = None
    """Storage of the folder: the node's default, or Memory."""
    size_limit: Quantity | None = None
    """Maximum size of the folder."""

    rules = (
        Rule(  # OpenAPI's patterns apply only to text
            "!has(self.sizeLimit) || quantity(string(self.sizeLimit))"
            ".compareTo(quantity('0')) >= 0",
            A_QUANTITY,
            at="sizeLimit",
        ),
    )


VOLUME_KINDS = ("secret", "configMap", "projected", "csi", "persistentVolumeClaim", "emptyDir")


_ONE_KIND = f"must have exactly one of {', '.join(VOLUME_KINDS)}"


_OWN_VOLUME = "must not be tmp or begin with secret-: headrace's own volumes have these names"


class Volume(Model):
    """Kubernetes' Volume, limited to the kinds that Pod Security's `restricted` permits."""

    name: Label
    """Name of the volume."""
    secret: SecretVolume | None = None
    """Kubernetes' SecretVolumeSource."""
    config_map: ConfigMapVolume | None = None
    """Kubernetes' ConfigMapVolumeSource."""
    projected: AsInKubernetes | None = None
    """Kubernetes' ProjectedVolumeSource, such as a token for another audience."""
    csi: AsInKubernetes | None = None
    """Kubernetes' CSIVolumeSource, such as the Secrets Store driver."""
    persistent_volume_claim: ClaimVolume | None = None
    """Kubernetes' PersistentVolumeClaimVolumeSource."""
    empty_dir: EmptyDirVolume | None = None
    """Kubernetes' EmptyDirVolumeSource."""

    rules = (
        Rule(
            f"[{', '.join(f'has(self.{kind})' for kind in VOLUME_KINDS)}]"
            ".filter(one, one).size() == 1",
            _ONE_KIND,
        ),
        Rule("self.name != 'tmp' && !self.name.startsWith('secret-')", _OWN_VOLUME, at="name"),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        if len(self.model_fields_set - {"name"}) != 1:
            yield RuleViolation((), _ONE_KIND)
        if self.name == "tmp" or self.name.startswith("secret-"):
            yield RuleViolation(("name",), _OWN_VOLUME)


_OWN_FOLDERS = ("/tmp", "/etc/headrace")


_OWN_PATH = "must be an absolute path outside of /tmp and /etc/headrace, which headrace mounts"


_NO_COLON = "must not have a ':'"


_OUTSIDE = "must be a relative path without '..'"


_UPWARDS = r"^/|(^|/)\.\.(/|$)"


class VolumeMount(Model):
    """Kubernetes' VolumeMount: the path of a volume in a container."""

    name: Label
    """Name of the volume."""
    mount_path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Path in the container."""
    sub_path: Text | None = None
    """Path in the volume. Default: its root."""
    read_only: Flag = False
    """Whether the volume is mounted read-only."""

    rules = (
        Rule(
            "self.mountPath.startsWith('/') && !['/tmp', '/etc/headrace'].exists(own, "
            "self.mountPath == own || self.mountPath.startsWith(own + '/'))",
            _OWN_PATH,
            at="mountPath",
        ),
        Rule("!self.mountPath.contains(':')", _NO_COLON, at="mountPath"),
        Rule(
            rf"!has(self.subPath) || !self.subPath.matches(r'{_UPWARDS}')",
            _OUTSIDE,
            at="subPath",
        ),
    )

    def _breaches(self) -> Iterator[RuleViolation]:
        path = self.mount_path
        own = any(path == one or path.startswith(f"{one}/") for one in _OWN_FOLDERS)
        if own or not path.startswith("/"):
            yield RuleViolation(("mountPath",), _OWN_PATH)
        if ":" in path:
            yield RuleViolation(("mountPath",), _NO_COLON)
        if re.search(_UPWARDS, self.sub_path or ""):
            yield RuleViolation(("subPath",), _OUTSIDE)
