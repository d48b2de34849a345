"""Queue of flows, with a cache and a reconciler for each namespace."""

import asyncio
from collections.abc import Callable
from itertools import chain

from headrace.controller.children import Children
from headrace.controller.cluster_cache import ClusterCache
from headrace.controller.events import EventRecorder
from headrace.controller.flow_children import Rollouts
from headrace.controller.flow_reconciler import FlowReconciler
from headrace.controller.flow_writer import FlowWrites
from headrace.controller.kopf_copy import LIST_EVERY_S
from headrace.controller.options import OperatorOptions
from headrace.controller.queue import SOON_S, KeyQueue
from headrace.controller.target_topics import FlowName
from headrace.k8s import FLOW, Client, Object, owner_names


class FlowController:
    """Reconciles flows whose objects change. Use it from one event loop."""

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        options: OperatorOptions,
        on_reconciled: Callable[[float, bool], None] = lambda took_s, failed: None,
        list_every_s: float = LIST_EVERY_S,
    ) -> None:
        """Create a controller without objects.

        ``on_reconciled`` receives the duration of each reconcile, and True if it failed.
        """
        self._queue = KeyQueue[FlowName](on_reconciled=on_reconciled)
        self._children = Children(client)
        self._caches = {
            one: ClusterCache(client, one, self._queue.add, options.selector, list_every_s)
            for one in options.scopes
        }
        rollouts = Rollouts(
            options.max_concurrent_rollouts,
            lambda: chain.from_iterable(cache.flow_names() for cache in self._caches.values()),
            lambda name: self._queue.add(name, SOON_S),
        )
        self._reconcilers = {
            one: FlowReconciler(
                cache,
                self._children,
                FlowWrites(client, cache, events),
                options.flows,
                self._queue.add,
                rollouts=rollouts,
            )
            for one, cache in self._caches.items()
        }

    def observe(self, flow: Object, *, deleted: bool) -> None:
        """Store a flow from its watch, and queue it if it changed."""
        cache = self._caches[self._scope(flow["metadata"]["namespace"])]
        cache.observe_flow(flow, deleted=deleted)

    def observe_child(self, child: Object, *, deleted: bool) -> None:
        """Record an object that a flow owns, and queue the flow if it must be reconciled."""
        if self._children.observe(child, deleted=deleted):
            for owner in owner_names(child, FLOW):
                self._queue.add((child["metadata"]["namespace"], owner))

    def objects(self) -> list[Object]:
        """Return all flows, including invalid ones."""
        return [flow for cache in self._caches.values() for flow in cache.flow_objects()]

    def queue_length(self) -> int:
        """Return the number of flows that are due or in work. May be called from any thread."""
        return self._queue.length

    async def run(self) -> None:
        """Reconcile until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for cache in self._caches.values():
                    tasks.create_task(cache.run())
                tasks.create_task(self._queue.run(self._reconcile))
        finally:
            for reconciler in self._reconcilers.values():
                reconciler.close()

    async def _reconcile(self, name: FlowName) -> float | None:
        return await self._reconcilers[self._scope(name[0])].reconcile(name)

    def _scope(self, namespace: str) -> str | None:
        return namespace if namespace in self._caches else None
