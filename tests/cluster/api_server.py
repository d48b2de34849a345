"""A real Kubernetes API server on 127.0.0.1, run by processes of the current user."""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import urllib3
from cluster.audit import audit_flags, read_audit, write_policy
from cluster.build import cluster_binary
from cluster.certificates import Authority, write_key
from cluster.commands import FEW_CONTROLLERS, controllers_command, etcd_command, server_command
from cluster.component import Component, is_ok
from cluster.discovery import Kind, discover
from cluster.kubectl import Kubectl, KubectlError, write_kubeconfig
from cluster.rest import ApiError, Json, Rest

from headrace.sandbox.processes import HOST, held_ports

NOT_FOUND = 404
BY_AGE = "--sort-by=.metadata.creationTimestamp"

TOKEN_S = 24 * 3600
"""Lifetime of a ServiceAccount's token, which is longer than any test."""


class ApiServer(Kubectl):
    """Running kube-apiserver with its administrator's tools: kubectl, tokens, kubeconfigs.

    Any process that has its folder and address may use it, even if its processes belong to another
    one.
    """

    def __init__(self, binary: Path, folder: Path, url: str) -> None:
        """Create the API server at ``url``, whose files are in ``folder``."""
        self.folder = folder
        """Folder of logs, keys, kubeconfigs and etcd's data."""
        self.url = url
        self._pki = folder / "pki"
        self.rest = Rest(url, self._pki)
        """Client for requests as the administrator."""
        self._kinds: dict[str, Kind] = {}
        super().__init__(lambda: binary, folder / "admin.conf")

    def get(self, *what: str) -> Any:
        """Return objects by a request of this process, or by kubectl where that fails.

        Tests call this many times a second, and a process of kubectl costs 0.1 s of CPU.
        """
        try:
            found = self._ask(*what)
        except urllib3.exceptions.HTTPError:
            found = None
        except ApiError as error:
            if error.status == NOT_FOUND:
                message = str(error).removeprefix(f"{NOT_FOUND}: ")
                raise KubectlError(f"Error from server (NotFound): {message}") from error
            found = None
        return super().get(*what) if found is None else found  # kubectl prints the error

    def _ask(self, *what: str) -> Json | None:
        """Return the object, or None if only kubectl can answer."""
        arguments, namespace, query = iter(what), "default", ""
        named, by_age = list[str](), False
        for argument in arguments:
            if argument == "-n":
                namespace = next(arguments)
            elif argument == "-l":
                query = f"?labelSelector={quote(next(arguments))}"
            elif argument == BY_AGE:
                by_age = True
            else:
                named.append(argument)
        kinds, names = named[0].split(","), named[1:]
        if any(n.startswith("-") or "/" in n for n in named) or len(kinds) * len(names) > 1:
            return None
        if not self._kinds.keys() >= set(kinds):
            self._kinds = discover(self.rest)
            if not self._kinds.keys() >= set(kinds):
                return None
        if names:
            return _shown(self.rest.get(self._kinds[kinds[0]].path(namespace, names[0])))
        items = [
            _shown({"apiVersion": kind.api_version, "kind": kind.kind, **item})
            for kind in (self._kinds[name] for name in kinds)
            for item in self.rest.get(kind.path(namespace) + query)["items"]
        ]
        if by_age:
            items.sort(key=lambda item: item["metadata"]["creationTimestamp"])
        return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}

    def audit(self, namespace: str) -> list[Json]:
        """Return the requests that ServiceAccounts of a namespace have sent."""
        prefix = f"system:serviceaccount:{namespace}:"
        with (self.folder / "audit.log").open() as log:
            return [one for one in read_audit(log) if one["user"]["username"].startswith(prefix)]

    def recover(self) -> None:
        """Start it again if a test of this process has stopped it, and wait until it is ready."""

    def token(self, namespace: str, service_account: str, pod: Json | None = None) -> str:
        """Return a token of a ServiceAccount. A token bound to ``pod`` expires with the pod."""
        spec: Json = {"expirationSeconds": TOKEN_S}
        if pod:
            names = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", **names}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        token: str = self.rest.post(path, {"spec": spec})["status"]["token"]
        return token

    def kubeconfig_of(self, namespace: str, service_account: str) -> Path:
        """Return a kubeconfig that has only the permissions of a ServiceAccount."""
        path = self.folder / f"{namespace}-{service_account}.conf"
        user = {"token": self.token(namespace, service_account)}
        return self.write_kubeconfig(path, user, namespace)

    def write_kubeconfig(
        self, path: Path, user: Mapping[str, str], namespace: str = "default"
    ) -> Path:
        """Write a kubeconfig for this API server with these credentials, and return ``path``."""
        return write_kubeconfig(path, self.url, self._pki / "ca.crt", user, namespace)


class OwnApiServer(ApiServer):
    """kube-apiserver with its etcd and some controllers, but no scheduler, kubelet or network.

    Its processes belong to this process. ``stop``, ``kill`` and ``freeze`` make the API server
    fail. ``start`` starts it again at its address and with its objects. ``etcd`` and
    ``controllers`` have the same methods.
    """

    def __init__(
        self, binary: Path, folder: Path, ports: Sequence[int], flags: Sequence[str] = ()
    ) -> None:
        """Prepare the files in ``folder``.

        The ports are for the API server, for etcd's clients and for etcd's peers.
        """
        port, etcd_port, peer_port = ports
        pki = folder / "pki"
        pki.mkdir(parents=True)
        authority = Authority(pki)
        authority.sign("apiserver", "kube-apiserver")
        authority.sign("admin", "admin", "system:masters")
        write_key(pki / "accounts.key")
        write_policy(folder / "audit.yaml")
        super().__init__(binary, folder, f"https://{HOST}:{port}")
        self.write_kubeconfig(self.kubeconfig, authority.user("admin"))
        self.etcd = Component(
            [binary, "etcd", *etcd_command(folder / "etcd", etcd_port, peer_port)],
            folder / "etcd.log",
            lambda: is_ok(f"http://{HOST}:{etcd_port}/readyz"),
        )
        self.server = Component(
            [
                binary,
                "kube-apiserver",
                *server_command(pki, HOST, port, etcd_port),
                "--authorization-mode=RBAC",
                # No client uses the Service `kubernetes`. Without endpoints for it, the address to
                # advertise may be a loopback one.
                "--endpoint-reconciler-type=none",
                *audit_flags(folder / "audit.yaml", folder / "audit.log"),
                *flags,
            ],
            folder / "kube-apiserver.log",
            lambda: is_ok(f"{self.url}/readyz", pki / "ca.crt"),
        )
        self.controllers = Component(
            [
                binary,
                "kube-controller-manager",
                *controllers_command(pki, self.kubeconfig),
                f"--controllers={','.join(FEW_CONTROLLERS)}",
                "--horizontal-pod-autoscaler-sync-period=1s",
            ],
            folder / "kube-controller-manager.log",
            lambda: self._is_there("/api/v1/namespaces/default/serviceaccounts/default"),
        )

    def start(self) -> None:
        """Start or thaw all processes that do not run, and wait until they are ready."""
        self.etcd.launch()  # the API server waits for etcd
        if not self.server.running:
            self.controllers.kill()  # otherwise they back off for up to 30 s
        self.server.start()
        self.controllers.start()

    def recover(self) -> None:
        """Call ``start``, because a test that failed may have left it frozen or killed."""
        self.start()

    def stop(self) -> None:
        """End the API server cleanly (SIGTERM)."""
        self.server.stop()

    def kill(self) -> None:
        """End the API server with SIGKILL."""
        self.server.kill()

    def freeze(self) -> None:
        """Freeze the API server (SIGSTOP): connections stay open without answers."""
        self.server.freeze()

    def thaw(self) -> None:
        """Resume a frozen API server (SIGCONT)."""
        self.server.thaw()

    def end(self) -> None:
        """End all processes permanently and keep their logs."""
        for component in (self.controllers, self.server, self.etcd):
            component.kill()
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)  # 64 MB of little use

    def install_crds(self, folder: Path) -> None:
        """Apply the CustomResourceDefinitions of a folder, and wait until they are served."""
        self.kubectl("apply", "-f", str(folder))
        self.wait_until_established("-f", str(folder))
        # The garbage collector discovers new kinds only at its start and then every 30 s.
        self.controllers.kill()
        self.controllers.start()

    def wait_until_established(self, *definitions: str) -> None:
        """Wait until CustomResourceDefinitions are served.

        ``definitions`` are arguments of ``kubectl wait``, which fails while a new definition has no
        conditions.
        """
        while True:
            try:
                self.kubectl("wait", "--for=condition=Established", "--timeout=300s", *definitions)
            except KubectlError as error:
                if "accessor error" not in str(error):
                    raise
                time.sleep(0.1)
            else:
                return

    def _is_there(self, path: str) -> bool:
        try:
            self.rest.get(path)
        except (ApiError, urllib3.exceptions.HTTPError):
            return False
        return True


def _shown(object: Json) -> Json:
    """Return the object without the fields that kubectl does not print."""
    object["metadata"].pop("managedFields", None)
    return object


@contextmanager
def running_api_server(folder: Path, flags: Sequence[str] = ()) -> Iterator[OwnApiServer]:
    """Run an API server within the ``with`` block, and keep its logs in ``folder``.

    ``flags`` are appended to the fixed flags of kube-apiserver.

    Raises Fatal if it cannot be built or ends, and GaveUp if it is not ready in time.
    """
    binary = cluster_binary()
    with held_ports([None, None, None]) as ports:
        server = OwnApiServer(binary, folder, ports, flags)
        try:
            server.start()
        except BaseException:
            server.end()
            raise
        # The ports stay held: nobody else may take one while a test has stopped the process.
        try:
            yield server
        finally:
            server.end()
