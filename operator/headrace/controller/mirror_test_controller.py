"""Queue of MirrorTests, with a copy of them for each namespace."""

import asyncio
from collections.abc import Callable

from headrace.controller.events import EventRecorder
from headrace.controller.kopf_copy import KopfCopy
from headrace.controller.mirror_tests import MirrorTestReconciler, TestName, TestSettings
from headrace.controller.options import OperatorOptions
from headrace.controller.queue import KeyQueue
from headrace.k8s import MIRROR_TEST, Client, Object, WatchEvent, owner_names


class MirrorTestController:
    """Reconciles MirrorTests whose objects change. Use it from one event loop."""

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        options: OperatorOptions,
        settings: TestSettings,
        on_reconciled: Callable[[float, bool], None],
    ) -> None:
        """Create a controller without objects.

        ``on_reconciled`` receives the duration of each reconcile, and True if it failed.
        """
        self._queue = KeyQueue[TestName](on_reconciled=on_reconciled)
        self._reconciler = MirrorTestReconciler(client, events, settings, options.identity)
        self._is_selective = bool(options.selector)
        self._copies = {
            one: KopfCopy(
                client, MIRROR_TEST, one, labels=options.selector, on_change=self._changed
            )
            for one in options.scopes
        }

    def observe(self, test: Object, *, deleted: bool) -> None:
        """Store a test from its watch, and queue it if it changed."""
        self._copy(test["metadata"]["namespace"]).observe(test, deleted=deleted)

    def observe_stage(self, stage: Object) -> None:
        """Queue the test that owns a Job or a ConfigMap."""
        for owner in owner_names(stage, MIRROR_TEST)[:1]:
            self._queue.add((stage["metadata"]["namespace"], owner))

    def objects(self) -> list[Object]:
        """Return all tests."""
        return [test for copy in self._copies.values() for test in copy]

    def queue_length(self) -> int:
        """Return the number of tests that are due or in work. May be called from any thread."""
        return self._queue.length

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for copy in self._copies.values():
                tasks.create_task(copy.run())
            tasks.create_task(self._queue.run(self._reconcile))

    def _changed(self, change: WatchEvent) -> None:
        metadata = change.object["metadata"]
        for name in (metadata["name"], *owner_names(change.object, MIRROR_TEST)):
            self._queue.add((metadata["namespace"], name))

    async def _reconcile(self, name: TestName) -> float | None:
        # Jobs and ConfigMaps of all tests are watched, even if another operator reconciles the
        # test.
        if self._is_selective and self._copy(name[0]).get(name[1], name[0]) is None:
            return None
        return await self._reconciler.reconcile(name)

    def _copy(self, namespace: str) -> KopfCopy:
        return self._copies[namespace if namespace in self._copies else None]
