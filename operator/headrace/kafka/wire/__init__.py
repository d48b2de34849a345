"""A client of Kafka's protocol for what replication needs and librdkafka cannot do: record batches
as they are, fences with a producer epoch of one's own, a log's end as its leader knows it."""
