"""Checks of the settings of topics that a flow writes to."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from headrace.api.flow import Location
from headrace.connect.preflight.permissions import (
    CheckResult,
    Finding,
    copies,
    named,
    set_topic_command,
)
from headrace.connect.runtime.context import FlowContext
from headrace.connect.topics.topic_sync import change_settings
from headrace.datapath import PARTITIONS
from headrace.kafka import RightsAdmin, TopicConfig, TopicRights
from headrace.replication import (
    AS_GIVEN,
    config_changes,
    incompatible_settings,
    settings_of_other_offsets,
)


class TopicSettings(NamedTuple):
    """Settings of the topics that may be read, by name."""

    source: Mapping[str, TopicConfig]
    target: Mapping[str, TopicConfig]


def read_settings(
    context: FlowContext, topics: Collection[str], source: RightsAdmin, target: RightsAdmin
) -> TopicSettings:
    """Read the settings. Topics that cannot be read are reported by the permission checks."""
    wanted = [*copies(context, topics), context.progress.topic, context.checkpoints_topic]
    return TopicSettings(source.topic_configs(topics)[0], target.topic_configs(wanted)[0])


def check_copies(
    context: FlowContext, topics: Collection[str], settings: TopicSettings
) -> Iterator[Finding]:
    """Yield a finding for each setting of copies that the flow does not correct itself."""
    compared = []
    for topic in sorted(topics):
        name = context.policy.target_topic(topic)
        source, target = settings.source.get(topic), settings.target.get(name)
        if source is None or target is None:
            continue
        compared.append(name)
        corrected = set(_corrected(context, source, target))
        subject, access = named("topic", [name]), context.target_access
        if context.preserved:
            for setting, wanted, why in settings_of_other_offsets(
                source.in_effect, target.in_effect
            ):
                command = set_topic_command(access, name, setting, wanted)
                what = CheckResult.MISSING
                yield Finding(Location.TARGET, subject, setting, what, why, command=command)
                corrected.add(setting)  # reported already
        for setting, wanted, why in incompatible_settings(source.in_effect, target.in_effect):
            if setting not in corrected:
                command = set_topic_command(access, name, setting, wanted)
                what = CheckResult.WARNING
                yield Finding(Location.TARGET, subject, setting, what, why, command=command)
    if compared:
        yield Finding(
            Location.TARGET, named("topic", compared), "settings", CheckResult.OK, "compared"
        )


def check_replicas(
    names: Iterable[str], rights: Mapping[str, TopicRights], settings: TopicSettings
) -> Iterator[Finding]:
    """Yield findings about target topics that accept no record or could not be created."""
    writable = []
    for name in sorted(names):
        known, subject = rights[name], named("topic", [name])
        if known.creation is not None:
            why = str(known.creation)
            yield Finding(Location.TARGET, subject, "Create", CheckResult.MISSING, why)
        config = settings.target.get(name)
        if config is None or not known.exists:
            continue
        least = int(config.in_effect.get("min.insync.replicas", "1"))
        if known.replicas.in_sync < least:
            why = (
                f"a partition has {known.replicas.in_sync} replicas in sync of "
                f"{known.replicas.assigned}, and takes records with {least} or more"
            )
            yield Finding(Location.TARGET, subject, "min.insync.replicas", CheckResult.MISSING, why)
        else:
            writable.append(name)
    if writable:
        what = "min.insync.replicas"
        yield Finding(Location.TARGET, named("topic", writable), what, CheckResult.OK)


def check_internal_topics(
    context: FlowContext, rights: Mapping[str, TopicRights], settings: TopicSettings
) -> Iterator[Finding]:
    """Yield findings about cleanup policies and partition counts of the flow's internal topics."""
    for name, partitions in ((context.progress.topic, PARTITIONS), (context.checkpoints_topic, 1)):
        known, subject = rights.get(name), named("topic", [name])
        if known is not None and known.exists:
            yield _exactly(subject, known.partitions, partitions)
        if (config := settings.target.get(name)) is not None:
            yield _compacted(context, name, config.in_effect.get("cleanup.policy", "compact"))


def _exactly(subject: str, found: int, required: int) -> Finding:
    if found == required:
        return Finding(Location.TARGET, subject, "partitions", CheckResult.OK)
    why = f"{found}, and must be {required}: delete it, and headrace creates it again"
    return Finding(Location.TARGET, subject, "partitions", CheckResult.MISSING, why)


def _compacted(context: FlowContext, name: str, policy: str) -> Finding:
    subject, what = named("topic", [name]), "cleanup.policy"
    if policy == "compact":
        return Finding(Location.TARGET, subject, what, CheckResult.OK)
    command = set_topic_command(context.target_access, name, what, "compact")
    why = f"{policy}, and must be compact: what it holds would be deleted in time"
    return Finding(Location.TARGET, subject, what, CheckResult.MISSING, why, command=command)


def check_synchronized(
    context: FlowContext, topics: Collection[str], settings: TopicSettings, target: RightsAdmin
) -> Iterator[Finding]:
    """Yield a warning for each setting of the source that the target rejects."""
    changes = {}
    for topic in sorted(topics):
        name = context.policy.target_topic(topic)
        ours, theirs = settings.source.get(topic), settings.target.get(name)
        if ours is not None and theirs is not None:
            corrected = _corrected(context, ours, theirs)
            given = AS_GIVEN if context.preserved else ()
            if change := {one: value for one, value in corrected.items() if one not in given}:
                changes[name] = change
    for name, errors in change_settings(target.validate_topic_configs, changes).items():
        for setting, error in errors.items():
            subject, why = named("topic", [name]), f"it does not follow the source: {error}"
            yield Finding(Location.TARGET, subject, setting, CheckResult.WARNING, why)


def _corrected(
    context: FlowContext, source: TopicConfig, target: TopicConfig
) -> dict[str, str | None]:
    sync = context.spec.topic_configs
    return config_changes(source.own, target.in_effect, sync.exclude) if sync.enabled else {}
