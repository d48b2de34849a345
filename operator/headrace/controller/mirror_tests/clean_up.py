"""Deletes the topics of a scheduled run before the run is deleted.

The operator has no Kafka credentials, so a Job of the run deletes the topics. The run did not
create topics in ``load.names``, so they are kept.
"""

from headrace.api import ChaosAction, MirrorTest, Reason
from headrace.controller.children import create
from headrace.controller.events import EventRecorder, Occurrence
from headrace.controller.mirror_tests.pods import has_ended, read_pod
from headrace.controller.mirror_tests.run import (
    RUN_FOLDER,
    STAGE_LABEL,
    TEST_FILE,
    WRITABLE,
    TestRun,
    build_limits,
    labels,
    metadata,
    report_name,
)
from headrace.controller.mirror_tests.run_reader import RunReader
from headrace.controller.resources.deployment import (
    CONTAINER_SECURITY,
    SECRETS_FOLDER,
    build_mounts,
    build_volumes,
    secrets_of,
    with_pod_template,
)
from headrace.errors import HeadraceError, InvalidSpec
from headrace.k8s import CONFIG_MAP, JOB, POD, Client, Object, owns
from headrace.logs import get_logger
from headrace.mirror_test import documents

log = get_logger(__name__)

POLL_S = 10.0
"""Interval for checking the Job, in seconds. Its end triggers no reconcile of the run's test."""
_NAME = "clean-up"
_DEADLINE_S = 600
"""Time for the Job to pull its image and delete the topics, in seconds.

Afterwards the run is deleted anyway, so that a deleted Secret or a lost cluster does not keep runs
forever.
"""
_MEMORY = "256Mi"


class TopicCleanUp:
    """Deletes the topics of runs that are about to be deleted."""

    def __init__(self, client: Client, reader: RunReader, events: EventRecorder) -> None:
        self._client, self._reader, self._events = client, reader, events

    async def is_done(self, test: MirrorTest) -> bool:
        """Return True if a run may be deleted. Otherwise create its clean-up Job if it is missing.

        Topics that cannot be deleted are reported in an Event of the run.
        """
        try:
            return await self._is_done(test)
        except HeadraceError as error:
            await self._report(test, str(error))
            return False

    async def _is_done(self, test: MirrorTest) -> bool:
        client, namespace = self._client, test.metadata.namespace
        begun = await client.get(CONFIG_MAP, namespace, f"{test.metadata.name}-run")
        if begun is None or not owns(test, begun):
            return True
        try:
            run, _ = await self._reader.run(test, has_jobs=True)
        except InvalidSpec as error:  # the topics of the run are not known any more
            await self._report(test, str(error))
            return True
        if not creates_topics(run):
            return True
        job = await client.get(JOB, namespace, run.part(_NAME))
        if job is None:
            await create(client, test, build_clean_up(run))
            return False
        if (end := has_ended(job)) is None:
            return False
        if end["type"] != "Complete":
            await self._report(test, await self._why(namespace, job, end))
        return True

    async def _why(self, namespace: str, job: Object, end: Object) -> str:
        """Return the last problem of the Job's pods, or otherwise the message of its end."""
        name = job["metadata"]["name"]
        pods = await self._client.list(POD, namespace, labels=f"job-name={name}")
        problems = [problem.message for pod in pods if (problem := read_pod(pod).problem)]
        return problems[-1] if problems else f"Job {name}: {end.get('message') or end['type']}"

    async def _report(self, test: MirrorTest, why: str) -> None:
        note = f"the topics of run {test.metadata.name} may be left: {why}"
        await self._events.post(test, Occurrence(Reason.POD_FAILED, note, warning=True))


def creates_topics(run: TestRun) -> bool:
    """Return True if the run created topics."""
    spec = run.test.spec
    if spec.audit is not None:
        return False
    adds = any(step.action is ChaosAction.ADD_TOPIC for step in spec.chaos)
    return not spec.load.names or adds


def build_clean_up(run: TestRun) -> Object:
    """Return the Job that deletes the topics of a run and their copies.

    Its pod has the Secrets of both clusters, and no token for the API server.
    """
    marked = labels(run) | {STAGE_LABEL: _NAME}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(run, run.part(_NAME)) | {"labels": marked},
        "spec": {
            "backoffLimit": 2,
            "activeDeadlineSeconds": _DEADLINE_S,
            "template": with_pod_template(run.test.spec.pod_template, marked, _build_pod(run)),
        },
    }


def _build_pod(run: TestRun) -> Object:
    spec = run.test.spec
    secrets = secrets_of(*(one for one in (spec.source, spec.target) if one is not None))
    documents_of_run = [
        {"configMap": {"name": run.part("run")}},
        # Without a report of the verifier, the Job reads the topics from the journal.
        {"configMap": {"name": report_name(run.test), "optional": True}},
    ]
    return {
        "restartPolicy": "Never",
        "serviceAccountName": run.part("executor"),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [
            {
                "name": _NAME,
                "image": run.images.chaos,
                "imagePullPolicy": run.images.chaos_pull_policy,
                "command": ["headrace", "test", "clean-up"],
                "args": [
                    f"--test={TEST_FILE}",
                    f"--topics={RUN_FOLDER}/{documents.TOPICS}",
                    f"--run={run.name}",
                    f"--secrets={SECRETS_FOLDER}",
                ],
                **({"env": run.log_variables} if run.log_variables else {}),
                "resources": {
                    "requests": {"cpu": "50m", "memory": _MEMORY},
                    "limits": build_limits(_MEMORY, spec.spark.driver.resources.limits.cpu),
                },
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": CONTAINER_SECURITY,
                "volumeMounts": [
                    {"name": "run", "mountPath": RUN_FOLDER, "readOnly": True},
                    {"name": "tmp", "mountPath": WRITABLE},
                    *build_mounts(secrets),
                ],
            }
        ],
        "volumes": [
            {"name": "run", "projected": {"sources": documents_of_run}},
            {"name": "tmp", "emptyDir": {}},
            *build_volumes(secrets),
        ],
    }
