"""A broker's answer to a producer that asks for its id."""

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4 import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16, i32Timedelta

INIT_PRODUCER_ID = 22


def identity(_: Any) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=i32Timedelta.parse(timedelta()),
        error_code=ErrorCode.none,
        producer_id=ProducerId(77),
        producer_epoch=i16(3),
    )
