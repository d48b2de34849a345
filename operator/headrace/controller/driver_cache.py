"""The driver pods of all flows, and what is known of their Leases."""

from collections.abc import Callable, Mapping

from headrace.api import COMPONENT_LABEL, DRIVER_COMPONENT, FLOW_LABEL
from headrace.assign import DriverName
from headrace.controller.drivers import DriverLease, DriverPod
from headrace.controller.flow_cache import name_of
from headrace.controller.pods import driver_pod
from headrace.controller.targets import FlowName
from headrace.k8s import POD, Change, ChangeType, Client, LeaseWatch, Reflector

_DRIVERS = f"{COMPONENT_LABEL}={DRIVER_COMPONENT},{FLOW_LABEL}"


class DriverCache:
    """By flow. Pods of a flow that is not there, or not understood, are nobody's drivers."""

    def __init__(
        self,
        client: Client,
        namespace: str | None,
        lease_s: Callable[[FlowName], int | None],
        changed: Callable[[FlowName], None],
    ) -> None:
        """``lease_s``: how long the Leases of a flow last, None of one that is nobody's;
        ``changed`` gets a flow whose drivers did."""
        self._lease_s, self._changed = lease_s, changed
        self._pods: dict[FlowName, dict[DriverName, DriverPod]] = {}
        self._reported: dict[FlowName, Mapping[DriverName, DriverLease]] = {}
        self._pod_copy = Reflector(
            client, POD, namespace, labels=_DRIVERS, on_change=self.pod_changed
        )
        self._leases = LeaseWatch(
            client, _DRIVERS, namespace=namespace, on_change=self._leases_changed
        )
        self.copies = (self._pod_copy, self._leases)

    def pods(self, name: FlowName) -> list[DriverPod]:
        """The driver pods of a flow."""
        return list(self._pods.get(name, {}).values())

    def leases(self, name: FlowName) -> dict[DriverName, DriverLease]:
        """What is known of the Lease of each driver of a flow."""
        return {pod: self._lease((name[0], pod)) for pod in self._pods.get(name, {})}

    def expect_leases(self) -> None:
        """Pods have come or gone, or a flow says another duration."""
        self._leases.expect(
            {
                (flow[0], pod): lease_s
                for flow, pods in self._pods.items()
                if (lease_s := self._lease_s(flow)) is not None
                for pod in pods
            }
        )

    def pod_changed(self, change: Change) -> None:
        """As its watch reports it."""
        namespace, name = name_of(change.object)
        flow = (namespace, change.object["metadata"]["labels"][FLOW_LABEL])
        pods = self._pods.setdefault(flow, {})
        pod = driver_pod(change.object)
        if change.type is ChangeType.DELETED:
            pods.pop(name, None)
        elif pods.get(name) == pod:
            return
        else:
            pods[name] = pod
        self.expect_leases()
        self._changed(flow)

    def _lease(self, name: tuple[str, DriverName]) -> DriverLease:
        _, _, incarnation = self._leases.holder(name).rpartition("/")
        return DriverLease(incarnation, self._leases.renewed(name), self._leases.is_expired(name))

    def _leases_changed(self) -> None:
        for name in self._pods:
            if self._reported.get(name) != (now := self.leases(name)):
                self._reported[name] = now
                self._changed(name)
