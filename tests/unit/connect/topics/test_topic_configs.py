"""Settings of target topics that follow their sources, with brokers in memory.

tests/integration/test_topic_configs.py has real brokers.
"""

from support.source_tasks import COPY, TOPIC, Scene

from headrace.connect.topics.topic_sync import TopicConfigSync


def test_one_refused_setting_does_not_keep_the_others_from_following(scene: Scene) -> None:
    scene.change_spec(topicConfigs={"enabled": True, "intervalSeconds": 10})
    old = {"max.message.bytes": "1000", "retention.ms": "1", "segment.ms": "1"}
    new = {"max.message.bytes": "2000", "retention.ms": "2", "segment.ms": "2"}
    scene.source.configs[TOPIC], scene.target.configs[COPY] = dict(new), dict(old)
    scene.target.refused_settings.add("segment.ms")
    configs = TopicConfigSync(scene.context)
    configs.poll([TOPIC])
    assert scene.target.configs[COPY] == new | {"segment.ms": "1"}
    assert configs.problems == {COPY: "could not set segment.ms of east.orders"}
    (condition,) = configs.conditions
    assert (condition.type, condition.reason) == ("TopicConfigsRefused", "SettingRefused")
    assert condition.message.startswith("1 settings of target topics do not follow")
    assert condition.message.endswith("exclude: could not set segment.ms of east.orders")

    scene.target.refused_settings.clear()
    scene.clock.advance(10)
    configs.poll([TOPIC])
    assert (scene.target.configs[COPY], configs.problems) == (new, {})
    assert configs.conditions == ()
