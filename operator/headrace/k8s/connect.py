"""How a process finds the API server."""

import os
from pathlib import Path

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from yaml import YAMLError

from headrace.errors import InvalidSpec
from headrace.k8s.client import Client

_POD = "KUBERNETES_SERVICE_HOST"
"""What the kubelet sets in every container."""


async def connect(who: str) -> Client:
    """For the operator and its drivers: by ``KUBECONFIG``, else as a pod.

    Never by ``~/.kube/config``: a process that was started by hand must not find a cluster that
    nobody named. ``who`` begins the sentences of errors ("the operator"). Raises ``InvalidSpec``.
    """
    if files := os.environ.get("KUBECONFIG"):
        return await connect_by_file(who, files)
    settings = Configuration()
    try:
        config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise InvalidSpec(
            f"{who} does not know which API server to ask: KUBECONFIG is not set, and this is no "
            f"pod with a service account ({error}). Set KUBECONFIG to a kubeconfig file"
        ) from error
    return Client(ApiClient(settings), who)


async def connect_as_kubectl(who: str, context: str | None = None) -> Client:
    """For commands that people type: as kubectl, by ``KUBECONFIG`` or ``~/.kube/config``, or, in a
    pod that has neither, as its service account.

    The client's ``namespace`` is the context's. Raises ``InvalidSpec``.
    """
    files = os.environ.get("KUBECONFIG")
    if not files:
        own = Path.home() / ".kube" / "config"
        if context is None and _POD in os.environ and not own.exists():
            return await connect(who)
        files = str(own)
    return await connect_by_file(who, files, context)


async def connect_by_file(who: str, files: str, context: str | None = None) -> Client:
    """Connect by kubeconfig files, joined by ``:`` as in ``KUBECONFIG``.

    Raises:
        InvalidSpec: No file exists, or one of them cannot be used.
    """
    if not any(Path(file).expanduser().exists() for file in files.split(":") if file):
        raise InvalidSpec(
            f"there is no kubeconfig {files}, and no other way to find the Kubernetes cluster: set "
            "KUBECONFIG to a kubeconfig file"
        )
    settings = Configuration()
    try:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            files, context, settings, persist_config=False
        )
        known, current = config.list_kube_config_contexts(files)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError, YAMLError, ValueError, TypeError, KeyError) as error:
        raise InvalidSpec(f"kubeconfig {files} cannot be used: {error}") from error
    chosen = next((one for one in known if one["name"] == context), current)
    return Client(ApiClient(settings), who, chosen["context"].get("namespace") or "default")
