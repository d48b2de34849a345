"""A second mover, for tests: it copies record by record with librdkafka's clients.

Its copies on real brokers are compared with the batch mover's copies. On clusters in memory, which
have no wire protocol, source tasks run with it.
"""

from support.record_mover.mover import RecordMover

__all__ = ["RecordMover"]
