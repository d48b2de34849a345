"""Reconciler of MirrorTests."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from headrace.api import (
    API_VERSION,
    END_LOAD_ANNOTATION,
    KILL_ANNOTATION,
    LED_NEXT,
    OPERATOR_MANAGER,
    PAUSED_BY_ANNOTATION,
    ChaosAction,
    FlowState,
    MirrorTest,
    MirrorTestPhase,
    MirrorTestStatus,
    Readiness,
    Reason,
    conditions_of,
)
from headrace.api.meta import ObjectMeta
from headrace.controller.children import check_name, create
from headrace.controller.events import (
    EventRecorder,
    Occurrence,
    UnparsedMirrorTest,
    blocked_by,
    is_reported,
    occurrences,
)
from headrace.controller.mirror_tests.clean_up import POLL_S as CLEAN_UP_POLL_S
from headrace.controller.mirror_tests.clean_up import TopicCleanUp
from headrace.controller.mirror_tests.jobs import build_job, build_run
from headrace.controller.mirror_tests.pods import has_ended, left_executors, left_jobs, remove
from headrace.controller.mirror_tests.run import TestRun, TestSettings
from headrace.controller.mirror_tests.run_reader import RunReader
from headrace.controller.mirror_tests.schedule import next_scheduled, next_window
from headrace.controller.mirror_tests.stages import (
    RunFacts,
    has_begun,
    inconclusive,
    next_decision,
    with_conditions,
)
from headrace.controller.queue import SOON_S
from headrace.errors import HeadraceError, InvalidSpec, Retriable
from headrace.k8s import (
    CONFIG_MAP,
    FLOW,
    MIRROR_TEST,
    Client,
    Forbidden,
    Object,
    owns,
    parse,
)
from headrace.logs import get_logger
from headrace.mirror_test import Stage, documents

log = get_logger(__name__)


class StatusWrites:
    """Writes statuses of tests, unless the status already has the content."""

    def __init__(self, client: Client, events: EventRecorder) -> None:
        self._client, self._events = client, events

    async def report_invalid(self, object: Object, why: str, now: datetime) -> None:
        """Report an invalid test in its status, unless the test has ended."""
        status, metadata = object.get("status") or {}, object["metadata"]
        if status.get("verdict") or is_reported(object, why):
            return
        log.warning("test not understood", test=metadata["name"], namespace=metadata["namespace"])
        stalled = Readiness.stalled(Reason.INVALID_SPEC, why)
        generation = metadata.get("generation")
        conditions = conditions_of(stalled, None, now, generation=generation)
        invalid = MirrorTestStatus(observed_generation=generation, conditions=conditions)
        await self._apply(metadata, status | _dumped(invalid))
        named = ObjectMeta(**{key: metadata[key] for key in ("name", "namespace", "uid")})
        unparsed = UnparsedMirrorTest(named)
        await self._events.post(unparsed, Occurrence(Reason.INVALID_SPEC, why, warning=True))

    async def write(self, test: MirrorTest, status: MirrorTestStatus) -> None:
        """Write a changed status, and post an Event for each change of a condition."""
        if test.status == status:
            return
        await self._apply(test.metadata.model_dump(), _dumped(status))
        before = test.status.conditions if test.status else ()
        for happened in occurrences(before, status.conditions):
            await self._events.post(test, happened)

    async def _apply(self, metadata: Object, status: Object) -> None:
        manifest = {
            "apiVersion": API_VERSION,
            "kind": MIRROR_TEST.name,
            "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
            "status": status,
        }
        await self._client.apply(manifest, manager=OPERATOR_MANAGER, subresource="status")


def _dumped(status: MirrorTestStatus) -> dict[str, Any]:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


# How a MirrorTest kills the leading operator, as its ``spec.chaos`` requests. The Job has no
# permissions in the operator's namespace. It adds an empty annotation to its test. The leader
# writes its name into the annotation and exits at once without releasing the Lease, as after kill
# -9. The next leader finds a name and adds its own. The annotation stays, because the Job may poll
# after all of this.

EXIT_CODE = 137
"""Exit code of a process that was killed (128 + 9)."""


class Request(Enum):
    """Action that the annotation requests from this operator."""

    NOTHING = "nothing"
    DIE = "die"
    LEAD = "say that it leads"
    TAKE_OFF = "take it off"


def request(test: MirrorTest) -> Request:
    """Return the requested action.

    Only a test with a KillOperator step can kill the operator, and only while the test runs.
    """
    name = test.metadata.annotations.get(KILL_ANNOTATION)
    if name is None or LED_NEXT in name:
        return Request.NOTHING
    asks = any(step.action is ChaosAction.KILL_OPERATOR for step in test.spec.chaos)
    if asks and name:
        return Request.LEAD
    runs = test.status is not None and test.status.phase is MirrorTestPhase.RUNNING
    return Request.DIE if asks and runs else Request.TAKE_OFF


async def resume(client: Client, test: MirrorTest, jobs: Mapping[Stage, Object]) -> None:
    """Resume a flow that a chaos Job paused, if that Job has ended.

    The Job was killed or deleted, so nothing else resumes the flow. A running Job controls the
    pause itself. A flow that a user has paused does not have the annotation with this test's name.
    """
    flow, metadata = test.spec.flow_name, test.metadata
    if flow is None or all(step.action is not ChaosAction.PAUSE_FLOW for step in test.spec.chaos):
        return
    job = jobs.get(Stage.CHAOS)
    if job is not None and not has_ended(job):
        return
    found = await client.get(FLOW, metadata.namespace, flow)
    if found is None or _paused_by(found) != metadata.name:
        return
    patch: Object = {"metadata": {"annotations": {PAUSED_BY_ANNOTATION: None}}}
    if found["spec"].get("state") == FlowState.PAUSED:
        patch["spec"] = {"state": str(FlowState.RUNNING)}
        log.warning("resumed: the Job that paused it has ended", flow=flow, test=metadata.name)
    await client.patch(FLOW, metadata.namespace, flow, patch)


def _paused_by(flow: Object) -> str | None:
    name: str | None = (flow["metadata"].get("annotations") or {}).get(PAUSED_BY_ANNOTATION)
    return name


_TRY_AGAIN_S = 15.0
"""Retry interval while a user must change something that is not watched, in seconds.

For example, the user must grant a permission.
"""

TestName = tuple[str, str]
"""Namespace and name of a MirrorTest."""


class MirrorTestReconciler:
    """Reconciles MirrorTests.

    It has no cache, because tests are few, and their Jobs last for minutes.
    """

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        settings: TestSettings,
        identity: str,
    ) -> None:
        """Create a reconciler. ``identity`` is the name of this operator replica."""
        self._client, self._identity = client, identity
        self._settings, self._role = settings, settings.role
        self._reader, self._writes = RunReader(client, settings), StatusWrites(client, events)
        self._topics = TopicCleanUp(client, self._reader, events)

    async def reconcile(self, name: TestName) -> float | None:
        """Reconcile a test. Return the seconds until the next reconcile, or None after deletion."""
        object = await self._client.get(MIRROR_TEST, *name)
        if object is None or "deletionTimestamp" in object["metadata"]:
            return None
        try:
            test = parse(MirrorTest, object)
        except InvalidSpec as error:
            await self._writes.report_invalid(object, str(error), _now())
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
            await self._writes.write(test, with_conditions(test, verdict, _now()))
            return _TRY_AGAIN_S

    async def _clean_up(self, test: MirrorTest) -> float | None:
        """Delete the Jobs and pods of a test with a verdict. If the test has expired, delete it."""
        step, namespace = next_decision(RunFacts(test, _now())), test.metadata.namespace
        if step.expired:
            is_run = any(
                one.get("kind") == MIRROR_TEST.name for one in test.metadata.owner_references
            )
            if is_run and not await self._topics.is_done(test):
                return CLEAN_UP_POLL_S
            await self._client.delete(MIRROR_TEST, namespace, test.metadata.name)
            return None
        jobs, pods = await self._reader.stages(test)
        if self._role is not None:
            await resume(self._client, test, jobs)
        left = left_jobs(jobs, reported=step.status.report is not None)
        await remove(self._client, namespace, left_executors(jobs, pods), left)
        return step.again_s

    async def _answer(self, test: MirrorTest, asked: Request) -> None:
        """Write the answer to a request to kill the operator.

        After the answer to ``DIE``, exit the process.
        """
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
            # The write may have succeeded, and then nothing would repeat the request.
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
        await self._writes.write(test, step.status)
        for run in (one for one in runs if one.metadata.name in step.end):
            ended = inconclusive(RunFacts(run, _now()), "a later run of the schedule replaced it")
            await self._writes.write(run, ended.status)
        again_s = step.again_s
        for run in (one for one in runs if one.metadata.name in step.delete):
            if not await self._topics.is_done(run):
                again_s = min(again_s, CLEAN_UP_POLL_S)
                continue
            await self._client.delete(MIRROR_TEST, namespace, run.metadata.name)
        return again_s

    async def _carry_out(self, test: MirrorTest) -> float | None:
        metadata = test.metadata
        jobs, pods = await self._reader.stages(test)
        if jobs and self._role is not None:
            await resume(self._client, test, jobs)
        run, flow = await self._reader.run(test, has_jobs=bool(jobs))
        report = await self._reader.report(test)
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
                rehearses=run.rehearsal is not None,
                may_rehearse=self._settings.rehearsal_role is not None,
            )
        )
        if step.start is not None:
            await self._start(run, step.start)
        if END_LOAD_ANNOTATION in metadata.annotations and Stage.PRODUCE in jobs:
            await self._end_load(run)
        if not step.is_last:
            await remove(self._client, metadata.namespace, left_executors(jobs, pods))
        await self._writes.write(test, step.status)
        return SOON_S if step.is_last else step.again_s

    async def _start(self, run: TestRun, stage: Stage) -> None:
        """Create a stage's Job, and with the first Job the objects that all Jobs need.

        Names are checked before anything is created. Raise errors as ``check_name`` does.
        """
        needed = build_run(run) if stage is run.stages[0] else []
        jobs = {one: build_job(run, one) for one in (run.stages if needed else (stage,))}
        for manifest in (*needed, *jobs.values()):
            await check_name(self._client, run.test, manifest)
        for manifest in needed:
            await self._client.apply(manifest, manager=OPERATOR_MANAGER)
        await create(self._client, run.test, jobs[stage])

    async def _end_load(self, run: TestRun) -> None:
        """Signal the load's Job to stop sending, with a file in its volume."""
        namespace, name = run.test.metadata.namespace, run.part("run")
        kept = await self._client.get(CONFIG_MAP, namespace, name)
        if kept is not None and documents.END_LOAD not in (kept.get("data") or {}):
            await self._client.patch(
                CONFIG_MAP, namespace, name, {"data": {documents.END_LOAD: ""}}
            )


def _scheduled(object: Object) -> MirrorTest | None:
    """Parse a run. Return None for a finished run that this version cannot parse."""
    try:
        return parse(MirrorTest, object)
    except InvalidSpec:
        if (object.get("status") or {}).get("verdict"):
            return None
        raise


def _now() -> datetime:
    """Return the time without fractions of a second, as the API server stores times."""
    return datetime.now(UTC).replace(microsecond=0)
