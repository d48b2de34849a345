"""Carries MirrorTests out: reads what there is, does the next step, says how it stands."""

from contextlib import suppress
from datetime import UTC, datetime

from headrace.api import API_VERSION, MirrorTest, MirrorTestStatus, Reason, ReplicationFlow
from headrace.api.labels import MIRROR_TEST_LABEL, OPERATOR_MANAGER, label_value
from headrace.controller.events import EventRecorder, occurrences
from headrace.controller.mirror_tests.jobs import (
    Images,
    Stage,
    TestRun,
    build_job,
    build_run,
    report_name,
)
from headrace.controller.mirror_tests.schedule import next_scheduled
from headrace.controller.mirror_tests.stages import Facts, next_step, stalled
from headrace.controller.trouble import trouble
from headrace.errors import HeadraceError, InvalidSpec
from headrace.k8s import Client, Conflict, Object, parse
from headrace.k8s.kinds import CONFIG_MAP, FLOW, JOB, MIRROR_TEST
from headrace.replication.mirror_tests import resolve

TestName = tuple[str, str]
"""Namespace and name of a MirrorTest."""


class MirrorTestReconciler:
    """Reads anew at every look: tests are few, and their Jobs last for minutes."""

    def __init__(self, client: Client, events: EventRecorder, images: Images) -> None:
        self._client, self._events, self._images = client, events, images

    async def reconcile(self, name: TestName) -> float | None:
        """One look; in how many seconds the next one is due, ``None`` when the test is gone."""
        object = await self._client.get(MIRROR_TEST, *name)
        if object is None or "deletionTimestamp" in object["metadata"]:
            return None
        try:
            test = parse(MirrorTest, object)
        except InvalidSpec as error:
            await self._refuse(object, str(error))
            raise
        try:
            if test.spec.schedule:
                return await self._make_scheduled(test)
            return await self._carry_out(test)
        except HeadraceError as error:
            if (verdict := trouble(error)) is None:
                raise
            await self._say(test, stalled(test, verdict.reason, verdict.message, _now()))
            raise

    async def _refuse(self, object: Object, why: str) -> None:
        """Of a test that is not understood, nothing but its name and its status is read."""
        known = {"apiVersion": API_VERSION, "kind": MIRROR_TEST.name, "spec": {"flowName": "none"}}
        strange = parse(MirrorTest, object | known)
        await self._say(strange, stalled(strange, Reason.INVALID_SPEC, why, _now()))

    async def _make_scheduled(self, test: MirrorTest) -> float:
        namespace = test.metadata.namespace
        tests = await self._client.list(MIRROR_TEST, namespace)
        runs = [parse(MirrorTest, one) for one in tests if _is_owned(one, test)]
        step = next_scheduled(test, runs, _now())
        if step.create is not None:
            with suppress(Conflict):  # it was made, and the status was not written
                await self._client.create(step.create)
        await self._say(test, step.status)
        for name in step.delete:
            await self._client.delete(MIRROR_TEST, namespace, name)
        return step.again_s

    async def _carry_out(self, test: MirrorTest) -> float | None:
        metadata = test.metadata
        flow = await self._flow(test)
        run = await self._run(test, flow)
        labels = f"{MIRROR_TEST_LABEL}={label_value(metadata.name)}"
        jobs = await self._client.list(JOB, metadata.namespace, labels=labels)
        named = {job["metadata"]["name"]: job for job in jobs if _is_owned(job, test)}
        report = await self._client.get(CONFIG_MAP, metadata.namespace, report_name(test))
        step = next_step(
            Facts(
                test,
                _now(),
                run=run.name,
                flow=flow,
                jobs={stage: named[n] for stage in Stage if (n := run.part(stage)) in named},
                report=_report(report, test),
            )
        )
        if step.expired:
            await self._client.delete(MIRROR_TEST, metadata.namespace, metadata.name)
            return None
        if step.start is not None:
            if step.start is Stage.PROBE:
                for manifest in build_run(run):
                    await self._client.apply(manifest, manager=OPERATOR_MANAGER)
            with suppress(Conflict):  # made by another look
                await self._client.create(build_job(run, step.start))
        await self._say(test, step.status)
        return step.again_s

    async def _flow(self, test: MirrorTest) -> ReplicationFlow | None:
        if test.spec.flow_name is None:
            return None
        found = await self._client.get(FLOW, test.metadata.namespace, test.spec.flow_name)
        return parse(ReplicationFlow, found) if found else None

    async def _run(self, test: MirrorTest, flow: ReplicationFlow | None) -> TestRun:
        """The test as its Jobs have it: a flow that changes meanwhile changes nothing for it."""
        run = TestRun(test, self._images)
        kept = await self._client.get(CONFIG_MAP, test.metadata.namespace, run.part("run"))
        if kept is not None and _is_owned(kept, test):
            resolved = MirrorTest.model_validate_json(kept["data"]["test.json"])
            return TestRun(test.model_copy(update={"spec": resolved.spec}), self._images)
        return TestRun(resolve(test, flow), self._images) if flow else run

    async def _say(self, test: MirrorTest, status: MirrorTestStatus) -> None:
        if test.status == status:
            return
        named = {"name": test.metadata.name, "namespace": test.metadata.namespace}
        await self._client.apply(
            {
                "apiVersion": API_VERSION,
                "kind": test.kind,
                "metadata": named | {"uid": test.metadata.uid},
                "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
            },
            manager=OPERATOR_MANAGER,
            subresource="status",
        )
        before = test.status.conditions if test.status else ()
        for happened in occurrences(before, status.conditions):
            await self._events.post(test, happened)


def _is_owned(object: Object, test: MirrorTest) -> bool:
    owners = object["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == test.metadata.uid for owner in owners)


def _report(found: Object | None, test: MirrorTest) -> str | None:
    if found is None or not _is_owned(found, test):
        return None
    report: str | None = (found.get("data") or {}).get("report.json")
    return report


def _now() -> datetime:
    """To the second, as the API server keeps times: what is read back equals what was written."""
    return datetime.now(UTC).replace(microsecond=0)
