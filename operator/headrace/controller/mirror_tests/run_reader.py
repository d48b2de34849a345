"""Reads the Jobs, pods, plan and report of a MirrorTest's run from the API server."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from headrace.api import (
    MIRROR_TEST_LABEL,
    ChaosStep,
    MirrorTest,
    MirrorTestSpec,
    Rehearsal,
    ReplicationFlow,
    label_value,
)
from headrace.controller.mirror_tests.pods import TestPod, read_pod
from headrace.controller.mirror_tests.run import (
    TestRun,
    TestSettings,
    report_name,
    with_spark_defaults,
)
from headrace.controller.mirror_tests.stages import has_begun
from headrace.errors import InvalidSpec
from headrace.k8s import CONFIG_MAP, FLOW, JOB, POD, Client, Object, owns, read_in_force
from headrace.mirror_test import Stage, documents, read_plan, read_rehearsal, resolve


class RunReader:
    """Reads runs. Each call sends requests to the API server."""

    def __init__(self, client: Client, settings: TestSettings) -> None:
        self._client, self._settings = client, settings

    async def stages(self, test: MirrorTest) -> tuple[dict[Stage, Object], list[TestPod]]:
        """Return the existing Jobs of the test, with their pods and executors."""
        metadata, run = test.metadata, TestRun(test, self._settings.images)
        labels = f"{MIRROR_TEST_LABEL}={label_value(metadata.name)}"
        jobs = await self._client.list(JOB, metadata.namespace, labels=labels)
        named = {job["metadata"]["name"]: job for job in jobs if owns(test, job)}
        stages = {stage: named[n] for stage in Stage if (n := run.part(stage)) in named}
        pods = await self._client.list(POD, metadata.namespace, labels=labels) if stages else []
        return stages, [read_pod(pod) for pod in pods]

    async def run(
        self, test: MirrorTest, *, has_jobs: bool
    ) -> tuple[TestRun, ReplicationFlow | None]:
        """Return the run of a test, and the flow for which it may have to wait.

        If the run has begun, it is read from the ConfigMap of its Jobs, so that a change of the
        flow does not affect it. Otherwise it is built from the current flow.
        """
        test = with_spark_defaults(test, self._settings.defaults)
        run = TestRun(
            test,
            self._settings.images,
            test.spec.chaos,
            self._settings.role,
            test.spec.rehearsal,
            self._settings.rehearsal_role,
            self._settings.executor_role,
            network_policy=self._settings.network_policy,
            log_format=self._settings.log_format,
        )
        name = test.metadata.namespace, run.part("run")
        begun = has_jobs or has_begun(test)
        kept = await self._client.get(CONFIG_MAP, *name) if begun else None
        if kept is not None and owns(test, kept):
            stored = test.model_copy(update={"spec": _spec(kept)})
            return replace(run, test=stored, steps=_steps(kept), rehearsal=_rehearsal(kept)), None
        flow = None if has_begun(test) else await self._flow(test)
        return replace(run, test=resolve(test, flow)) if flow else run, flow

    async def report(self, test: MirrorTest) -> str | None:
        """Return the content of ``report.json``, or None if the verifier has not written it."""
        found = await self._client.get(CONFIG_MAP, test.metadata.namespace, report_name(test))
        if found is None or not owns(test, found):
            return None
        report: str | None = (found.get("data") or {}).get(documents.REPORT)
        return report

    async def _flow(self, test: MirrorTest) -> ReplicationFlow | None:
        if test.spec.flow_name is None:
            return None
        found = await self._client.get(FLOW, test.metadata.namespace, test.spec.flow_name)
        return read_in_force(found, None).flow if found else None


def _spec(kept: Object) -> MirrorTestSpec:
    """Return the spec at the start of the run. The test may have changed."""
    with _read_from(kept):
        return MirrorTest.model_validate_json(kept["data"][documents.TEST]).spec


def _steps(kept: Object) -> tuple[ChaosStep, ...]:
    with _read_from(kept):
        plan = kept["data"].get(documents.FAULTS)
        return read_plan(plan, documents.FAULTS).steps if plan else ()


def _rehearsal(kept: Object) -> Rehearsal | None:
    with _read_from(kept):
        plan = kept["data"].get(documents.REHEARSAL)
        groups = read_rehearsal(plan, documents.REHEARSAL).groups if plan else ()
        return Rehearsal(groups=len(groups)) if groups else None


@contextmanager
def _read_from(kept: Object) -> Iterator[None]:
    try:
        yield
    except (KeyError, ValueError, InvalidSpec) as error:
        raise InvalidSpec(
            f"ConfigMap {kept['metadata']['name']}, which stores the test for its Jobs, cannot be "
            "read: a user changed it, or another version of headrace wrote it; delete the test and "
            "create it again"
        ) from error
