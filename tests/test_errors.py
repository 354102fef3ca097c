"""The exception tree, its sentences, and Kafka's error codes."""

from __future__ import annotations

import copy
import pickle
import re

import kio.schema.errors
import pytest

from shoal import errors
from shoal.error_codes import ErrorCode, named_code
from shoal.errors import (
    AccessRefused,
    BrokerError,
    BufferFull,
    ConfigError,
    CorruptBatch,
    DeliveryTimedOut,
    Disconnected,
    ExpandsTooFar,
    GroupHeld,
    NoPosition,
    NotConvertible,
    OptionError,
    PartitionStopped,
    ProtocolError,
    ShoalError,
    Stopped,
    Unreachable,
    UnsupportedBatch,
    UnsupportedCompression,
)

EXAMPLES = [
    (ConfigError("no topic matches 'orders.*'"), "no topic matches 'orders.*'"),
    (
        AccessRefused("the source cluster's broker kafka:9093", "the login of 'a' by PLAIN failed"),
        "no access to the source cluster's broker kafka:9093: the login of 'a' by PLAIN failed",
    ),
    (CorruptBatch("magic 7 is not 0, 1 or 2", 61), "corrupt batch at 61: magic 7 is not 0, 1 or 2"),
    (
        UnsupportedBatch("it has holes", 1000),
        "the batch at offset 1000 cannot be mirrored: it has holes",
    ),
    (
        ExpandsTooFar("its records expand to more than 900 bytes", 1000),
        "the batch at offset 1000 cannot be mirrored: its records expand to more than 900 bytes",
    ),
    (
        UnsupportedCompression("messages of magic 1 cannot be zstd", 1000),
        "the batch at offset 1000 cannot be converted: messages of magic 1 cannot be zstd",
    ),
    (
        NotConvertible(ErrorCode.CORRUPT_MESSAGE, "corrupt batch at 61: its CRC is wrong"),
        "no conversion to another format: corrupt batch at 61: its CRC is wrong",
    ),
    (ProtocolError("a response of 3 bytes"), "a response of 3 bytes"),
    (Disconnected("kafka:9092", "no answer in time"), "no connection to kafka:9092: no answer in time"),
    (Unreachable("kafka:9092", "Connection refused"), "no connection to kafka:9092: Connection refused"),
    (
        BrokerError(6, "Produce to orders-3"),
        "Produce to orders-3: error 6 NOT_LEADER_OR_FOLLOWER",
    ),
    (
        BrokerError(ErrorCode.INVALID_RECORD, "Produce to orders-3", "one batch per partition"),
        "Produce to orders-3: error 87 INVALID_RECORD (one batch per partition)",
    ),
    (
        BrokerError(999, "Fetch of orders-3"),
        "Fetch of orders-3: error 999, unknown to shoal",
    ),
    (
        BrokerError(30, "joining of group g"),
        "joining of group g: error 30 GROUP_AUTHORIZATION_FAILED: the user has no ACL for that. "
        "Grant READ on the group at the source",
    ),
    (
        GroupHeld("shoal-orders", "shoal-1 at 10.0.0.7"),
        "the consumer group 'shoal-orders' on the source cluster is held by shoal-1 at 10.0.0.7. "
        "Stop that mirror first. Use another group only for other topics, or for other names at the "
        "destination: two mirrors of the same copies would write records twice",
    ),
    (
        NoPosition("orders", 3),
        "orders-3: the group has no committed offset, and auto.offset.reset is 'none'. "
        "Seek, commit, or set it to earliest or latest",
    ),
    (BufferFull("no room for 5 bytes"), "no room for 5 bytes"),
    (
        DeliveryTimedOut("orders", 3, 500, True),
        "orders-3: no acknowledgement in delivery.timeout.ms=500. It may be written nevertheless",
    ),
    (
        DeliveryTimedOut("orders", 3, 500, False),
        "orders-3: no acknowledgement in delivery.timeout.ms=500. It was not written",
    ),
    (Stopped("the driver is gone"), "the driver is gone"),
    (OptionError("{option} {value!r}: too many for {adopt}", option="x", value=7), "x 7: too many for adopt"),
    (
        PartitionStopped("orders", 3, 1000, "the destination lost its last 5 records"),
        "orders-3 stopped at source offset 1000: the destination lost its last 5 records",
    ),
]


def exceptions() -> set[str]:
    return {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == errors.__name__
    }


def test_exceptions_are_in_the_documented_tree_and_exported() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"^ {4}(?:│ {3})?(?:[├└]── )?(\w+) {2,}\S", errors.__doc__, re.MULTILINE)
    assert set(drawn) == exceptions()
    assert len(drawn) == len(set(drawn))
    assert set(errors.__all__) == exceptions() | {"ErrorCode", "named_code", "raise_for"}


def test_documented_tree_matches_the_classes() -> None:
    """One root, and a class for each reaction under it."""
    assert errors.__doc__ is not None
    parent: type = ShoalError
    for indent, name in re.findall(r"^ {4}(│ {3})?[├└]── (\w+)", errors.__doc__, re.MULTILINE):
        drawn = getattr(errors, name)
        assert drawn.__base__ is (parent if indent else ShoalError)
        if not indent:
            parent = drawn


@pytest.mark.parametrize(("error", "sentence"), EXAMPLES)
def test_errors_have_literal_messages(error: ShoalError, sentence: str) -> None:
    assert str(error) == sentence


def test_exceptions_have_an_example_in_this_module() -> None:
    assert {type(error).__name__ for error, _ in EXAMPLES} == exceptions() - {"ShoalError"}


@pytest.mark.parametrize(("error", "sentence"), EXAMPLES)
def test_errors_survive_pickling(error: ShoalError, sentence: str) -> None:
    for received in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert type(received) is type(error)
        assert str(received) == sentence
        assert vars(received) == vars(error)


def test_errors_have_their_attributes() -> None:
    assert CorruptBatch("reason").position == 0
    refused = BrokerError(999, "where", "detail")
    assert (refused.code, refused.raw_code, refused.where, refused.detail) == (-1, 999, "where", "detail")
    stopped = PartitionStopped("orders", 3, 1000, "reason")
    assert (stopped.topic, stopped.partition, stopped.offset, stopped.reason) == ("orders", 3, 1000, "reason")
    assert UnsupportedBatch("reason", 7).base_offset == 7
    assert Disconnected("kafka:9092", "reason").address == "kafka:9092"
    assert GroupHeld("group", "holder").holder == "holder"


@pytest.mark.parametrize(
    ("code", "retriable"), [(6, True), (7, True), (87, False), (0, False), (-1, True), (999, True)]
)
def test_broker_error_has_retriable(code: int, retriable: bool) -> None:
    assert BrokerError(code, "somewhere").retriable is retriable


def test_error_codes_equal_those_of_another_library() -> None:
    ours = {code.value: (code.name, code.retriable) for code in ErrorCode}
    theirs = {code.value: (code.name.upper(), code.retriable) for code in kio.schema.errors.ErrorCode}
    assert ours == theirs


@pytest.mark.parametrize("code", [-2, 9999, 2**15 - 1])
def test_unknown_code_is_unknown_server_error(code: int) -> None:
    assert ErrorCode.of(code) is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("code", "name"), [(-1, "error -1 UNKNOWN_SERVER_ERROR"), (171, "error 171, unknown to shoal")]
)
def test_named_code_unknown_code_keeps_its_number(code: int, name: str) -> None:
    assert named_code(code) == name


def test_known_code_is_unchanged() -> None:
    assert all(ErrorCode.of(int(code)) is code for code in ErrorCode)
    assert pickle.loads(pickle.dumps(ErrorCode.CORRUPT_MESSAGE)) is ErrorCode.CORRUPT_MESSAGE
