"""Quotas of brokers, which neither librdkafka nor our wire client can set."""

import io
import socket
import struct
from typing import Any

from kio.schema.alter_client_quotas.v1.request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.primitive import f64
from support.patience import WITHIN_S

from headrace.kafka.wire.schemas import read_message
from headrace.sandbox import SandboxCluster


def limit_reads(cluster: SandboxCluster, client_id: str, bytes_per_second: int) -> None:
    """Limit the rate at which clients with this id read from the cluster's first broker.

    The broker applies the limit a moment after its answer.
    """
    request = AlterClientQuotasRequest(
        entries=(
            EntryData(
                entity=(EntityData(entity_type="client-id", entity_name=client_id),),
                ops=(
                    OpData(
                        key="consumer_byte_rate", value=f64(float(bytes_per_second)), remove=False
                    ),
                ),
            ),
        ),
        validate_only=False,
    )
    answer = _answer(cluster, request, AlterClientQuotasResponse)
    assert [one.error_code for one in answer.entries] == [ErrorCode.none], answer


def _answer(cluster: SandboxCluster, request: Any, response: type) -> Any:
    host, port = cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
    body = io.BytesIO()
    entity_writer(type(request))(body, request)
    header = struct.pack(">hhih", request.__api_key__, request.__version__, 0, -1) + b"\0"
    frame = header + body.getvalue()
    with socket.create_connection((host, int(port)), WITHIN_S) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        with connection.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            view = memoryview(answers.read(size))
    message, end = read_message(response, view, 5)  # after the correlation id and no tags
    assert end == size
    return message
