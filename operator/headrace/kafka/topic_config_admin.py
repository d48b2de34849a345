"""Settings of topics of a cluster: read, and changed one by one."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from headrace.errors import HeadraceError
from headrace.kafka.cluster_admin import ClusterAdmin
from headrace.kafka.errors import code_of


class TopicConfig(NamedTuple):
    """A topic's settings that may be read, by name."""

    own: Mapping[str, str]
    """Set on the topic itself."""
    in_effect: Mapping[str, str]
    """These, and the broker's defaults."""


class TopicConfigAdmin(ClusterAdmin):
    """Blocking calls as ``ClusterAdmin``'s."""

    def topic_config(self, name: str) -> dict[str, str]:
        """A topic's settings as they are in effect; ``Fatal`` without the right DescribeConfigs."""
        client = self._requests.client
        tried = f"read the settings of topic {name} of {self.name}"
        resource = ConfigResource(ResourceType.TOPIC, name)
        futures = self._requests.call(
            tried,
            lambda: client.describe_configs([resource], request_timeout=self._timeout_s),
        )
        return {
            key: one.value for key, one in self._requests.result(tried, futures[resource]).items()
        }

    def topic_configs(
        self, names: Iterable[str]
    ) -> tuple[dict[str, TopicConfig], dict[str, HeadraceError]]:
        """The settings of these topics, and why those of some cannot be read; a topic that is not
        there is in neither."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
        found: dict[str, TopicConfig] = {}
        refused: dict[str, HeadraceError] = {}
        if not resources:
            return found, refused
        client = self._requests.client
        futures = self._requests.call(
            f"read the settings of topics of {self.name}",
            lambda: client.describe_configs(resources, request_timeout=self._timeout_s),
        )
        for resource, future in futures.items():
            name = str(resource.name)
            try:
                entries = self._requests.result(
                    f"read the settings of topic {name} of {self.name}", future
                )
            except HeadraceError as error:
                if code_of(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    refused[name] = error
                continue
            known = {key: one for key, one in entries.items() if one.value is not None}
            own = {key: one.value for key, one in known.items() if _of_topic(one)}
            found[name] = TopicConfig(own, {key: one.value for key, one in known.items()})
        return found, refused

    def change_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, HeadraceError]:
        """Set these settings of these topics, or restore the broker's default (``None``), and leave
        all others; why some topics' cannot be changed."""
        return self._change(changes, only_validate=False)

    def validate_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, HeadraceError]:
        """Return the errors that ``change_topic_configs`` would return, and change nothing."""
        return self._change(changes, only_validate=True)

    def _change(
        self, changes: Mapping[str, Mapping[str, str | None]], *, only_validate: bool
    ) -> dict[str, HeadraceError]:
        if not changes:
            return {}
        resources = [
            ConfigResource(
                ResourceType.TOPIC,
                name,
                incremental_configs=[_changed(key, value) for key, value in change.items()],
            )
            for name, change in changes.items()
        ]
        client = self._requests.client
        futures = self._requests.call(
            f"change settings of topics of {self.name}",
            lambda: client.incremental_alter_configs(
                resources, validate_only=only_validate, request_timeout=self._timeout_s
            ),
        )
        refused: dict[str, HeadraceError] = {}
        for resource, future in futures.items():
            name = str(resource.name)
            tried = f"set {', '.join(changes[name])} of topic {name} of {self.name}"
            try:
                self._requests.result(tried, future)
            except HeadraceError as error:
                refused[name] = error
        return refused


def _of_topic(entry: ConfigEntry) -> bool:
    return ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG


def _changed(name: str, value: str | None) -> ConfigEntry:
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(name, value, incremental_operation=kind)
