"""Records that are lost: which, why, and what the flow did then."""

from enum import StrEnum

from headrace.api.model import Count, Flag, Model, Text, Timestamp


class LossCause(StrEnum):
    """What happened to the records. Source... counts offsets of the source, Target... those of the
    target."""

    SOURCE_TRUNCATED = "SourceTruncated"
    """The source deleted records before they were copied (retention)."""
    SOURCE_DIVERGED = "SourceDiverged"
    """The source lost records that were copied, and may write others in their place (an unclean
    election)."""
    SOURCE_RECREATED = "SourceRecreated"
    """The topic on the source was deleted and created again."""
    SOURCE_DELETED = "SourceDeleted"
    """The topic on the source was deleted, with records that were not copied."""
    TARGET_TRUNCATED = "TargetTruncated"
    """The target lost copies that it had acknowledged (an unclean election)."""
    TARGET_RECREATED = "TargetRecreated"
    """The topic on the target was deleted and created again."""


class LossAction(StrEnum):
    """What the flow did, by spec.onDataLoss."""

    STOPPED = "Stopped"
    """The partition waits for a person."""
    RESTARTED = "Restarted"
    """It was copied again from the earliest offset there was."""
    CONTINUED = "Continued"
    """It went on behind what is lost."""


class LostOffsets(Model):
    """The last loss of one partition."""

    topic: Text
    """Of the source."""
    partition: Count
    """Its number."""
    cause: LossCause
    """What happened."""
    first_offset: Count
    """The first offset that is lost; on the target when the cause begins with Target."""
    last_offset: Count | None = None
    """The last offset that is lost; absent when none is known."""
    lower_bound: Flag = False
    """Whether later ones may be lost, too: nobody can ask a topic that was deleted."""
    action: LossAction
    """What the flow did."""
    time: Timestamp
    """When it was noticed."""
