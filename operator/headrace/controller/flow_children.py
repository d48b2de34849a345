"""What a flow owns, made of its spec and the chart's defaults; drivers when it is their turn."""

from dataclasses import dataclass, field

from headrace.api import CONNECTOR_MANAGER, ReplicationFlow
from headrace.controller.children import Children
from headrace.controller.cluster_cache import ClusterCache
from headrace.controller.drivers import Drivers, drivers_of, is_ambiguous
from headrace.controller.names import TEMPLATE
from headrace.controller.resources import (
    CONNECTORS,
    DriverDefaults,
    build_children,
    build_connector,
    build_deployment,
    template_hash,
    with_defaults,
)
from headrace.controller.rollouts import Rollouts
from headrace.controller.targets import FlowName, flow_name
from headrace.errors import HeadraceError
from headrace.k8s import DEPLOYMENT, NETWORK_POLICY
from headrace.logs import get_logger

log = get_logger(__name__)


@dataclass(frozen=True)
class Settings:
    """What the operator was started with, as far as it concerns flows."""

    driver_image: str
    network_policy: bool = False
    driver_defaults: DriverDefaults = field(default_factory=DriverDefaults)
    chaos: bool = False
    """Whether mirror tests may break drivers."""


class FlowChildren:
    """Of all flows. For one event loop."""

    def __init__(
        self, cache: ClusterCache, children: Children, settings: Settings, rollouts: Rollouts
    ) -> None:
        self._cache, self._children = cache, children
        self._settings, self._rollouts = settings, rollouts
        self._waiting: set[FlowName] = set()
        """Flows whose drivers stay as they are until it is their turn to roll out."""

    async def apply(self, flow: ReplicationFlow) -> None:
        """Write what differs from what the flow wants now."""
        settings = self._settings
        for manifest in build_children(
            with_defaults(flow, settings.driver_defaults),
            settings.driver_image,
            network_policy=settings.network_policy,
            chaos=settings.chaos,
        ):
            if manifest["kind"] == DEPLOYMENT.name and self.waits(flow):
                if (template := self._children.template(flow)) is None:
                    continue  # its watch is about to report it
                manifest["spec"]["template"] = template
            await self._children.apply(flow, manifest)
        there = {task.metadata.name for task in self._cache.tasks(flow)}
        for type in CONNECTORS:
            connector = build_connector(flow, type)
            if connector["metadata"]["name"] not in there:
                made = await self._children.create(flow, connector, CONNECTOR_MANAGER)
                self._cache.put_task(made)
        if not settings.network_policy:
            await self._children.remove(flow, NETWORK_POLICY)

    async def drivers(self, flow: ReplicationFlow, *, paused: bool) -> Drivers:
        """Those that there are, once it is decided whether they stay as they are for now."""
        newest = self._newest_template(flow)
        self._take_turn(flow, newest, paused=paused)
        if self.waits(flow) and (template := self._children.template(flow)):
            newest = template["metadata"]["labels"].get(TEMPLATE, newest)
        pods, replica_set = self._cache.pods(flow), ""
        if is_ambiguous(pods, newest):
            try:
                replica_set = await self._children.newest_replica_set(flow)
            except HeadraceError as error:  # a lost driver's units do not wait for it
                log.warning("takes all driver pods for the newest", why=str(error))
            pods = self._cache.pods(flow)  # as they are by now
        return drivers_of(pods, newest, self._cache.leases(flow_name(flow)), replica_set)

    def waits(self, flow: ReplicationFlow) -> bool:
        """Whether its drivers stay as they are."""
        return flow_name(flow) in self._waiting

    def refused_pods(self, flow: ReplicationFlow) -> str:
        """Why its Deployment cannot make pods; empty: it can."""
        return self._children.refused_pods(flow)

    def observed(self, name: FlowName) -> None:
        """A flow was reconciled, however that ended."""
        self._rollouts.observed(name)

    def forget(self, name: FlowName) -> None:
        """A flow is gone."""
        self._children.forget(*name)
        self._rollouts.forget(name)
        self._waiting.discard(name)

    def _newest_template(self, flow: ReplicationFlow) -> str:
        made, settings = with_defaults(flow, self._settings.driver_defaults), self._settings
        return template_hash(build_deployment(made, settings.driver_image, chaos=settings.chaos))

    def _take_turn(self, flow: ReplicationFlow, newest: str, *, paused: bool) -> None:
        name = flow_name(flow)
        if paused:
            self._rollouts.forget(name)  # it keeps no other one waiting
            self._rollouts.observed(name)
            self._waiting.add(name)
        elif self._rollouts.may_begin(flow, self._cache.pods(flow), newest):
            self._waiting.discard(name)
        else:
            self._waiting.add(name)
