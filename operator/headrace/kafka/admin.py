"""What is on a cluster: its id, topics, partitions and offsets; and making more of them."""

from headrace.kafka.group_admin import GroupAdmin
from headrace.kafka.offset_admin import OffsetAdmin
from headrace.kafka.share_group_admin import ShareGroupAdmin
from headrace.kafka.topic_admin import TopicAdmin
from headrace.kafka.topic_config_admin import TopicConfigAdmin


class Admin(TopicAdmin, TopicConfigAdmin, OffsetAdmin, GroupAdmin, ShareGroupAdmin):
    """All of it, through one client of the cluster."""
