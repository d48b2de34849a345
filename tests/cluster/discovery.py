"""Kinds that an API server serves, by the names that kubectl accepts for them."""

from typing import NamedTuple

from cluster.rest import Json, Rest


class Kind(NamedTuple):
    """Kind of objects, with its path on the API server."""

    group_path: str
    """Path of the group and version, such as ``/apis/apps/v1``."""
    plural: str
    kind: str
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        """Return the path of an object, or of the list if there is no name."""
        within = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{self.group_path}{within}/{self.plural}" + (f"/{name}" if name else "")

    @property
    def api_version(self) -> str:
        """Value of ``apiVersion`` in objects of the kind."""
        return self.group_path.removeprefix("/apis/").removeprefix("/api/")


def discover(rest: Rest) -> dict[str, Kind]:
    """Return each kind by its plural, singular and short names. The first group has precedence."""
    groups = rest.get("/apis")["groups"]
    paths = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    found: dict[str, Kind] = {}
    for path in paths:
        for resource in rest.get(path)["resources"]:
            for name in _names(resource):
                kind = Kind(path, resource["name"], resource["kind"], resource["namespaced"])
                found.setdefault(name, kind)
    return found


def _names(resource: Json) -> list[str]:
    if "/" in resource["name"]:
        return []  # a subresource
    names = (resource["name"], resource["singularName"], *resource.get("shortNames", ()))
    return [name for name in names if name]
