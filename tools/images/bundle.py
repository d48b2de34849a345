"""Writes a bundle for the Operator Lifecycle Manager (OLM) from what Helm renders of the chart."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from headrace.errors import Fatal
from images.catalogue import ROOT

Object = dict[str, Any]

NAMESPACE = "headrace"
"""Namespace for which the chart is rendered. In the bundle, pods read their own."""
PACKAGE, CHANNEL = "headrace", "alpha"
_EXAMPLES = ("flow.yaml", "flow-and-test.yaml")
_INTERNAL = "replicationtasks.headrace.dev"
"""Kind that only the operator creates. Consoles do not offer it."""
_KEPT = ("ClusterRole", "PodDisruptionBudget")
"""Kinds that OLM installs beside the operator. Its own roles are part of the CSV."""
_ANNOTATIONS = {
    "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
    "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
    "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
    "operators.operatorframework.io.bundle.package.v1": PACKAGE,
    "operators.operatorframework.io.bundle.channels.v1": CHANNEL,
    "operators.operatorframework.io.bundle.channel.default.v1": CHANNEL,
}


def write_bundle(rendered: Iterable[Object | None], folder: Path) -> Path:
    """Write manifests, metadata and Dockerfile of a bundle, and return its folder.

    ``rendered`` are the objects that ``helm template`` prints for ``NAMESPACE``.
    """
    objects = [one for one in rendered if one]
    files = {
        "metadata/annotations.yaml": _text({"annotations": _ANNOTATIONS}),
        "bundle.Dockerfile": _dockerfile(),
        f"manifests/{PACKAGE}.clusterserviceversion.yaml": _text(cluster_service_version(objects)),
    }
    for one in objects:
        name = one["metadata"]["name"]
        if one["kind"] == "CustomResourceDefinition" or (
            one["kind"] in _KEPT and not _is_bound(one, objects)
        ):
            one["metadata"].pop("namespace", None)  # OLM refuses objects that name one
            files[f"manifests/{name}.{one['kind'].lower()}.yaml"] = _text(one)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def cluster_service_version(objects: list[Object]) -> Object:
    """Return the ClusterServiceVersion of the operator that the chart deploys.

    Raises:
        Fatal: If the objects have no Deployment.
    """
    chart = yaml.safe_load((ROOT / "charts/headrace/Chart.yaml").read_text())
    deployments = [one for one in objects if one["kind"] == "Deployment"]
    if not deployments:
        raise Fatal("the chart rendered no Deployment: a bundle needs scope Cluster")
    (image,) = {_container(one)["image"] for one in deployments}
    accounts = {_pod(one)["serviceAccountName"] for one in deployments}
    definitions = [one for one in objects if one["kind"] == "CustomResourceDefinition"]
    texts = {
        one["name"]: one for one in yaml.safe_load(chart["annotations"]["artifacthub.io/crds"])
    }
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{PACKAGE}.v{chart['version']}",
            "annotations": {
                "alm-examples": json.dumps(_examples(), indent=2),
                "capabilities": "Basic Install",
                "categories": "Streaming & Messaging",
                "containerImage": image,
                "description": chart["description"],
                "operators.operatorframework.io/internal-objects": json.dumps([_INTERNAL]),
            },
        },
        "spec": {
            "displayName": PACKAGE,
            "description": chart["description"] + ".\n",
            "version": chart["version"],
            "maturity": "alpha",
            "minKubeVersion": chart["kubeVersion"].removeprefix(">=").removesuffix("-0"),
            "keywords": chart["keywords"],
            "provider": {"name": chart["maintainers"][0]["name"]},
            "installModes": [
                {"type": mode, "supported": mode == "AllNamespaces"}
                for mode in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "install": {
                "strategy": "deployment",
                "spec": {
                    "clusterPermissions": [
                        {
                            "serviceAccountName": account,
                            "rules": [
                                rule
                                for one in objects
                                if one["kind"] == "ClusterRole" and _is_bound(one, objects)
                                for rule in one["rules"]
                            ],
                        }
                        for account in sorted(accounts)
                    ],
                    "deployments": [
                        {"name": one["metadata"]["name"], "spec": _in_own_namespace(one)}
                        for one in deployments
                    ],
                },
            },
            "customresourcedefinitions": {
                "owned": [
                    {
                        "name": one["metadata"]["name"],
                        "kind": one["spec"]["names"]["kind"],
                        "version": version["name"],
                        "displayName": texts[one["metadata"]["name"]]["displayName"],
                        "description": texts[one["metadata"]["name"]]["description"],
                    }
                    for one in definitions
                    for version in one["spec"]["versions"]
                ]
            },
        },
    }


def _in_own_namespace(deployment: Object) -> Object:
    """Return the spec of a Deployment whose arguments name the namespace of its pods."""
    spec: Object = json.loads(json.dumps(deployment["spec"]))
    container = _container({"spec": spec})
    container["args"] = [
        f"{name}=$(POD_NAMESPACE)" if value == NAMESPACE else argument
        for argument in container["args"]
        for name, _, value in [argument.partition("=")]
    ]
    own = {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    container["env"] = [own, *container["env"]]
    return spec


def _is_bound(role: Object, objects: list[Object]) -> bool:
    """Return whether a ClusterRoleBinding of the chart names this role."""
    return any(
        one["kind"] == "ClusterRoleBinding" and one["roleRef"]["name"] == role["metadata"]["name"]
        for one in objects
    )


def _pod(deployment: Mapping[str, Any]) -> Object:
    pod: Object = deployment["spec"]["template"]["spec"]
    return pod


def _container(deployment: Mapping[str, Any]) -> Object:
    (container,) = _pod(deployment)["containers"]
    found: Object = container
    return found


def _examples() -> list[Object]:
    """Return an example of each kind, by their order in the files."""
    found: dict[str, Object] = {}
    for name in _EXAMPLES:
        for one in yaml.safe_load_all((ROOT / "examples" / name).read_text()):
            found.setdefault(one["kind"], one)
    return list(found.values())


def _dockerfile() -> str:
    labels = "".join(f"LABEL {name}={value}\n" for name, value in _ANNOTATIONS.items())
    return f"FROM scratch\n\n{labels}\nCOPY manifests /manifests/\nCOPY metadata /metadata/\n"


def _text(document: Object) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=120)
