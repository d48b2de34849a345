"""Differences between source and target that a flow makes on purpose.

A *resolved* test contains them in an annotation (``mirror_test/run.py``).
"""

import hashlib
from typing import Any

from pydantic import ValidationError

from headrace.api import (
    FLOW_CHANGES_ANNOTATION,
    HeaderChanges,
    MirrorTest,
    Model,
    OnRecordError,
    Policy,
    RecordErrorAction,
    RecordFilter,
    ReplicationFlow,
    progress_topic,
)
from headrace.errors import InvalidSpec
from headrace.replication import Progress, ProgressKey, SkippedRange

_TEMPLATES = ("Default", "Identity")
"""Policies for which ``spec.targetTopic`` of the resolved test gives the names of all copies."""


class FlowChanges(Model):
    """Fields of a flow by which its copies differ from the source on purpose."""

    record_filter: RecordFilter | None = None
    headers: HeaderChanges | None = None
    replication_policy: Policy | None = None
    """Rule for the names of copies, or None if ``spec.targetTopic`` of the test gives all names."""
    on_record_error: OnRecordError = OnRecordError()

    @property
    def of_records(self) -> str:
        """Hash of the changes to records, or an empty string if there is none.

        The sums of two audits over a range of the source are comparable only if this hash is equal.
        """
        if self.record_filter is None and self.headers is None:
            return ""
        kept = self.model_dump_json(include={"record_filter", "headers"})
        return hashlib.sha256(kept.encode()).hexdigest()[:16]

    @classmethod
    def of(cls, flow: ReplicationFlow) -> "FlowChanges":
        """Return the changes of a flow."""
        spec = flow.spec
        policy = spec.replication_policy
        return cls(
            record_filter=spec.record_filter,
            headers=spec.headers,
            replication_policy=None if policy.type in _TEMPLATES else policy,
            on_record_error=spec.on_record_error,
        )

    @classmethod
    def of_test(cls, test: MirrorTest) -> "FlowChanges":
        """Return the changes in the annotation of a resolved test.

        Raises:
            InvalidSpec: The annotation is invalid.
        """
        text = test.metadata.annotations.get(FLOW_CHANGES_ANNOTATION)
        if text is None:
            return cls()
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise InvalidSpec(
                f"{test.metadata.name}: metadata.annotations.{FLOW_CHANGES_ANNOTATION} cannot be "
                f"read ({error.errors()[0]['msg']}): remove it, because headrace writes it itself"
            ) from error

    def topics_of_refused(self, source_alias: str) -> tuple[str, ...]:
        """Return the target topics that contain the positions of records that were not copied."""
        if self.on_record_error.action is RecordErrorAction.FAIL:
            return ()
        dead_letters = self.on_record_error.dead_letter_topic
        return tuple(filter(None, (progress_topic(source_alias), dead_letters)))

    def annotation(self) -> dict[str, Any]:
        """Return the annotation of a resolved test. It is empty if there are no changes."""
        if self == FlowChanges():
            return {}
        return {FLOW_CHANGES_ANNOTATION: self.model_dump_json(by_alias=True, exclude_defaults=True)}


def skipped_ranges(key: bytes, value: bytes) -> tuple[ProgressKey, tuple[SkippedRange, ...]] | None:
    """Return the key of a progress record, and the ranges of skipped records that it contains.

    Return None for a record of another program or version.
    """
    try:
        return ProgressKey.decode(key), Progress.decode(value).skipped
    except ValueError:
        return None
