"""Message sets of old producers are bounded by their topic's ``max.message.bytes``."""

from __future__ import annotations

from collections.abc import Callable

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal.records import Codec
from shoal.timing import Timing
from shoal_broker import BrokerCluster
from tests.batches import message, wrapper
from tests.broker.wire import Wire
from tests.gateway.behind import Behind, gateway_before

Connect = Callable[[str], Wire]


def compressed(expanded_bytes: int) -> bytes:
    """Return a small wrapper that expands to so many bytes or a few more."""
    inner = [message(0, b"\0" * 1000, offset=each) for each in range(expanded_bytes // 1000)]
    return bytes(wrapper(0, Codec.GZIP, inner, offset=len(inner) - 1))


def test_set_may_expand_to_16_times_max_message_bytes(behind: Behind, connect: Connect) -> None:
    topic = behind.new_topic(max_message_bytes="2000")
    wire = connect(behind.address(topic))
    assert len(compressed(40_000)) < 2000
    assert wire.produce(topic, compressed(40_000), version=0).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert wire.produce(topic, compressed(25_000), version=0).error_code == ErrorCode.NONE
    assert wire.end_offset(topic) == 25


def test_set_is_bounded_by_the_option_if_its_topic_allows_more(
    cluster: BrokerCluster, connect: Connect
) -> None:
    with gateway_before(cluster, largest_produced_bytes=64 * 1024) as behind:
        topic = behind.new_topic()
        wire = connect(behind.address(topic))
        assert wire.produce(topic, compressed(80_000), version=0).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert wire.produce(topic, compressed(50_000), version=0).error_code == ErrorCode.NONE


def test_message_beyond_its_topic_s_limit_is_refused(behind: Behind, connect: Connect) -> None:
    topic = behind.new_topic(max_message_bytes="2000")
    wire = connect(behind.address(topic))
    for size, code in ((3000, ErrorCode.MESSAGE_TOO_LARGE), (1500, ErrorCode.NONE)):
        assert wire.produce(topic, message(0, b"x" * size), version=0).error_code == code


def test_limit_is_cached(behind: Behind, connect: Connect) -> None:
    topic = behind.new_topic(max_message_bytes="2000")
    wire = connect(behind.address(topic))
    assert wire.produce(topic, compressed(40_000), version=0).error_code == ErrorCode.MESSAGE_TOO_LARGE
    alter(wire, topic, "4000")
    assert wire.produce(topic, compressed(40_000), version=0).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_limit_is_refreshed_after_its_time(cluster: BrokerCluster, connect: Connect) -> None:
    with gateway_before(cluster, timing=Timing(topic_limit_kept_s=0.0)) as behind:
        topic = behind.new_topic(max_message_bytes="2000")
        wire = connect(behind.address(topic))
        assert wire.produce(topic, compressed(40_000), version=0).error_code == ErrorCode.MESSAGE_TOO_LARGE
        alter(wire, topic, "4000")
        assert wire.produce(topic, compressed(40_000), version=0).error_code == ErrorCode.NONE


def alter(wire: Wire, topic: str, value: str) -> None:
    resource = request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS).AlterConfigsResource
    config = resource.AlterableConfig(name="max.message.bytes", config_operation=0, value=value)
    answer = wire.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[resource(resource_type=2, resource_name=topic, configs=[config])],
        validate_only=False,
    )
    assert answer.responses[0].error_code == ErrorCode.NONE


def test_unknown_topic_has_the_broker_s_error(behind: Behind, connect: Connect) -> None:
    wire = connect(behind.address())
    answer = wire.produce("never-created", message(0), version=0)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
