"""A job of Structured Streaming as its users write it: ``python streaming_job.py TOPIC FOLDER``.

Each line of standard input names brokers. The job reads their records, and resumes from its own
checkpoint in the folder. It writes the records to ``records``.
"""

import sys

from pyspark.sql import SparkSession


def read_on(spark: SparkSession, servers: str, topic: str, folder: str) -> None:
    """Read all records after the checkpoint."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("offset", "hex(value) as value")
    )
    query = (
        records.writeStream.format("json")
        .option("path", f"{folder}/records")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    session = SparkSession.builder.getOrCreate()
    for line in sys.stdin:
        read_on(session, line.strip(), *sys.argv[1:])
        sys.stdout.write("read\n")
        sys.stdout.flush()
