"""Reconciles MirrorTests: reads their state, carries out the next step, writes the status."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from headrace.api import (
    API_VERSION,
    END_LOAD_ANNOTATION,
    KILL_ANNOTATION,
    LED_NEXT,
    MIRROR_TEST_LABEL,
    OPERATOR_MANAGER,
    ChaosStep,
    MirrorTest,
    MirrorTestSpec,
    MirrorTestStatus,
    Readiness,
    Reason,
    ReplicationFlow,
    conditions_of,
    label_value,
)
from headrace.controller.blocked import blocked_by, is_reported
from headrace.controller.child_ownership import check_name, create
from headrace.controller.events import EventRecorder, occurrences
from headrace.controller.mirror_tests.defaults import with_spark_defaults
from headrace.controller.mirror_tests.ended import left_executors, left_jobs, remove
from headrace.controller.mirror_tests.facts import RunFacts
from headrace.controller.mirror_tests.jobs import build_job, build_run
from headrace.controller.mirror_tests.killed import EXIT_CODE, Request, request
from headrace.controller.mirror_tests.paused import resume
from headrace.controller.mirror_tests.pods import TestPod, read_pod
from headrace.controller.mirror_tests.run import TestRun, TestSettings, report_name
from headrace.controller.mirror_tests.schedule import next_scheduled
from headrace.controller.mirror_tests.stages import has_begun, next_decision
from headrace.controller.mirror_tests.status import with_conditions
from headrace.controller.mirror_tests.windows import next_window
from headrace.controller.queue import SOON_S
from headrace.errors import HeadraceError, InvalidSpec, Retriable
from headrace.k8s import (
    CONFIG_MAP,
    FLOW,
    JOB,
    MIRROR_TEST,
    POD,
    Client,
    Forbidden,
    Object,
    owns,
    parse,
)
from headrace.logs import get_logger
from headrace.mirror_test import Stage, documents, read_plan, resolve

log = get_logger(__name__)

_TRY_AGAIN_S = 15.0
"""When somebody has to change something that is not watched, such as the operator's rights."""

TestName = tuple[str, str]
"""Namespace and name of a MirrorTest."""


class MirrorTestReconciler:
    """Has no cache: tests are few, and their Jobs last for minutes."""

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        settings: TestSettings,
        identity: str,
    ) -> None:
        """``identity``: of this operator."""
        self._client, self._events, self._identity = client, events, identity
        self._settings, self._images, self._role = settings, settings.images, settings.role

    async def reconcile(self, name: TestName) -> float | None:
        """Reconcile once; seconds until the next time, ``None`` when the test is gone."""
        object = await self._client.get(MIRROR_TEST, *name)
        if object is None or "deletionTimestamp" in object["metadata"]:
            return None
        try:
            test = parse(MirrorTest, object)
        except InvalidSpec as error:
            await self._report_invalid(object, str(error))
            return _TRY_AGAIN_S
        if not test.spec.repeats and test.status and test.status.verdict:
            return await self._clean_up(test)
        try:
            if self._role is not None and (asked := request(test)) is not Request.NOTHING:
                await self._answer(test, asked)
            if not has_begun(test) and (why := self._settings.refusal(test)):
                raise Forbidden(why)
            if test.spec.repeats:
                return await self._begin_others(test)
            return await self._carry_out(test)
        except HeadraceError as error:
            if (verdict := blocked_by(error)) is None:
                raise
            await self._write_status(test, with_conditions(test, verdict, _now()))
            return _TRY_AGAIN_S

    async def _clean_up(self, test: MirrorTest) -> float | None:
        """Delete what is left of a test that has its verdict, which stays as it is."""
        step, namespace = next_decision(RunFacts(test, _now())), test.metadata.namespace
        if step.expired:
            await self._client.delete(MIRROR_TEST, namespace, test.metadata.name)
            return None
        jobs, pods = await self._stages(test)
        if self._role is not None:
            await resume(self._client, test, jobs)
        left = left_jobs(jobs, reported=step.status.report is not None)
        await remove(self._client, namespace, left_executors(jobs, pods), left)
        return step.again_s

    async def _answer(self, test: MirrorTest, asked: Request) -> None:
        """Answer a test's request to kill this operator; does not return when it ends."""
        answers = {
            Request.DIE: self._identity,
            Request.LEAD: f"{test.metadata.annotations[KILL_ANNOTATION]}{LED_NEXT}{self._identity}",
            Request.TAKE_OFF: None,
        }
        dies = asked is Request.DIE
        try:
            await self._client.patch(
                MIRROR_TEST,
                test.metadata.namespace,
                test.metadata.name,
                {"metadata": {"annotations": {KILL_ANNOTATION: answers[asked]}}},
            )
        except Retriable:
            if not dies:
                raise
            # It may be written all the same: then nobody would ask again.
        if dies:
            log.warning("ends at once, as spec.chaos asks", test=test.metadata.name)
            os._exit(EXIT_CODE)

    async def _begin_others(self, test: MirrorTest) -> float:
        namespace = test.metadata.namespace
        tests = await self._client.list(MIRROR_TEST, namespace)
        runs = [run for one in tests if owns(test, one) and (run := _scheduled(one))]
        decide = next_scheduled if test.spec.schedule else next_window
        step = decide(test, runs, _now())
        if step.create is not None:
            await create(self._client, test, step.create)
        await self._write_status(test, step.status)
        for name in step.delete:
            await self._client.delete(MIRROR_TEST, namespace, name)
        return step.again_s

    async def _carry_out(self, test: MirrorTest) -> float | None:
        metadata = test.metadata
        jobs, pods = await self._stages(test)
        if jobs and self._role is not None:
            await resume(self._client, test, jobs)
        run, flow = await self._run(test, has_jobs=bool(jobs))
        kept = await self._client.get(CONFIG_MAP, metadata.namespace, report_name(test))
        report = _report(kept, test)
        step = next_decision(
            RunFacts(
                test,
                _now(),
                run=run.name,
                flow=flow,
                jobs=jobs,
                pods=pods,
                report=report,
                breaks=bool(run.steps),
                may_break=self._role is not None,
            )
        )
        if step.start is not None:
            await self._start(run, step.start)
        if END_LOAD_ANNOTATION in metadata.annotations and Stage.PRODUCE in jobs:
            await self._end_load(run)
        if not step.is_last:
            await remove(self._client, metadata.namespace, left_executors(jobs, pods))
        await self._write_status(test, step.status)
        return SOON_S if step.is_last else step.again_s

    async def _stages(self, test: MirrorTest) -> tuple[dict[Stage, Object], list[TestPod]]:
        """Its Jobs that are there, and their pods and executors."""
        metadata, run = test.metadata, TestRun(test, self._images)
        labels = f"{MIRROR_TEST_LABEL}={label_value(metadata.name)}"
        jobs = await self._client.list(JOB, metadata.namespace, labels=labels)
        named = {job["metadata"]["name"]: job for job in jobs if owns(test, job)}
        stages = {stage: named[n] for stage in Stage if (n := run.part(stage)) in named}
        pods = await self._client.list(POD, metadata.namespace, labels=labels) if stages else []
        return stages, [read_pod(pod) for pod in pods]

    async def _start(self, run: TestRun, stage: Stage) -> None:
        """Create a stage's Job; with the first, what all of them need. Names that are taken are
        found before anything is created; raises as ``check_name``."""
        needed = build_run(run) if stage is Stage.PROBE else []
        jobs = {one: build_job(run, one) for one in (run.stages if needed else (stage,))}
        for manifest in (*needed, *jobs.values()):
            await check_name(self._client, run.test, manifest)
        for manifest in needed:
            await self._client.apply(manifest, manager=OPERATOR_MANAGER)
        await create(self._client, run.test, jobs[stage])

    async def _end_load(self, run: TestRun) -> None:
        """Signal the load's Job, by a file of its volume, that it is to send no more."""
        namespace, name = run.test.metadata.namespace, run.part("run")
        kept = await self._client.get(CONFIG_MAP, namespace, name)
        if kept is not None and documents.END_LOAD not in (kept.get("data") or {}):
            await self._client.patch(
                CONFIG_MAP, namespace, name, {"data": {documents.END_LOAD: ""}}
            )

    async def _flow(self, test: MirrorTest) -> ReplicationFlow | None:
        if test.spec.flow_name is None:
            return None
        found = await self._client.get(FLOW, test.metadata.namespace, test.spec.flow_name)
        return parse(ReplicationFlow, found) if found else None

    async def _run(
        self, test: MirrorTest, *, has_jobs: bool
    ) -> tuple[TestRun, ReplicationFlow | None]:
        """The test as its Jobs have it: a flow that changes meanwhile changes nothing for it.
        Before there are any, as it is now, and the flow that it may have to wait for."""
        test = with_spark_defaults(test, self._settings.defaults)
        run = TestRun(
            test,
            self._images,
            test.spec.chaos,
            self._role,
            self._settings.executor_role,
            network_policy=self._settings.network_policy,
        )
        name = test.metadata.namespace, run.part("run")
        kept = await self._client.get(CONFIG_MAP, *name) if has_jobs else None
        if kept is not None and owns(test, kept):
            spec, steps = _begun_with(kept)
            return replace(run, test=test.model_copy(update={"spec": spec}), steps=steps), None
        flow = None if has_begun(test) else await self._flow(test)
        return replace(run, test=resolve(test, flow)) if flow else run, flow

    async def _report_invalid(self, object: Object, why: str) -> None:
        """Report an invalid test in its status, unless it has ended."""
        status, metadata = object.get("status") or {}, object["metadata"]
        if status.get("verdict") or is_reported(object, why):
            return
        log.warning("test not understood", test=metadata["name"], namespace=metadata["namespace"])
        stalled, generation = (
            Readiness.stalled(Reason.INVALID_SPEC, why),
            metadata.get("generation"),
        )
        conditions = conditions_of(stalled, None, _now(), generation=generation)
        invalid = MirrorTestStatus(observed_generation=generation, conditions=conditions)
        await self._apply_status(metadata, status | _dumped(invalid))

    async def _write_status(self, test: MirrorTest, status: MirrorTestStatus) -> None:
        if test.status == status:
            return
        await self._apply_status(test.metadata.model_dump(), _dumped(status))
        before = test.status.conditions if test.status else ()
        for happened in occurrences(before, status.conditions):
            await self._events.post(test, happened)

    async def _apply_status(self, metadata: Object, status: Object) -> None:
        manifest = {
            "apiVersion": API_VERSION,
            "kind": MIRROR_TEST.name,
            "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
            "status": status,
        }
        await self._client.apply(manifest, manager=OPERATOR_MANAGER, subresource="status")


def _scheduled(object: Object) -> MirrorTest | None:
    """A run; None for one that is over and not understood, as another version may have left it."""
    try:
        return parse(MirrorTest, object)
    except InvalidSpec:
        if (object.get("status") or {}).get("verdict"):
            return None
        raise


def _dumped(status: MirrorTestStatus) -> dict[str, Any]:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def _begun_with(kept: Object) -> tuple[MirrorTestSpec, tuple[ChaosStep, ...]]:
    """The spec and the steps of chaos when the run began: the test may have changed."""
    name = kept["metadata"]["name"]
    try:
        spec = MirrorTest.model_validate_json(kept["data"][documents.TEST]).spec
        plan = kept["data"].get(documents.FAULTS)
        return spec, read_plan(plan, documents.FAULTS).steps if plan else ()
    except (KeyError, ValueError, InvalidSpec) as error:
        raise InvalidSpec(
            f"ConfigMap {name}, which holds the test as its Jobs have it, cannot be read: somebody "
            "changed it, or another version made it; delete the test and make it again"
        ) from error


def _report(found: Object | None, test: MirrorTest) -> str | None:
    if found is None or not owns(test, found):
        return None
    report: str | None = (found.get("data") or {}).get(documents.REPORT)
    return report


def _now() -> datetime:
    """To the second, as the API server keeps times: what is read back equals what was written."""
    return datetime.now(UTC).replace(microsecond=0)
