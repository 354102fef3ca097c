"""The exception tree, its sentences, and Kafka's error codes."""

from __future__ import annotations

import copy
import pickle

import kio.schema.errors
import pytest

from shoal import errors
from shoal.error_codes import ErrorCode, named_code
from shoal.errors import (
    AccessRefused,
    BeingDownloaded,
    BrokerError,
    BufferFull,
    ConfigError,
    CorruptBatch,
    DeliveryTimedOut,
    Disconnected,
    ExpandsTooFar,
    GroupHeld,
    LargerThanBuffer,
    NoPosition,
    NotConvertible,
    PartitionStopped,
    ProtocolError,
    ShoalError,
    Stopped,
    StorageFailed,
    Unreachable,
    UnsupportedBatch,
    UnsupportedCompression,
)

EXAMPLES = [
    ConfigError("no topic matches 'orders.*'"),
    AccessRefused("the source cluster's broker kafka:9093", "the login of 'a' by PLAIN failed"),
    CorruptBatch("magic 7 is not 0, 1 or 2", 61),
    UnsupportedBatch("it has holes", 1000),
    ExpandsTooFar("its records expand to more than 900 bytes", 1000),
    UnsupportedCompression("messages of magic 1 cannot be zstd", 1000),
    NotConvertible(ErrorCode.CORRUPT_MESSAGE, "corrupt batch at 61: its CRC is wrong"),
    ProtocolError("a response of 3 bytes"),
    Disconnected("kafka:9092", "no answer in time"),
    StorageFailed("/mnt/x/topics/orders/topic.1.json", "No space left on device. Make room on its disk"),
    BeingDownloaded("s3://b/topics/orders/0/0.1-1.log", "it is being downloaded", 3.5),
    Unreachable("kafka:9092", "Connection refused"),
    BrokerError(ErrorCode.INVALID_RECORD, "Produce to orders-3", "one batch per partition"),
    BrokerError(999, "Fetch of orders-3"),
    GroupHeld("shoal-orders", "shoal-1 at 10.0.0.7"),
    NoPosition("orders", 3),
    BufferFull("no room for 5 bytes"),
    LargerThanBuffer("5 bytes are more than buffer.memory=4 as a whole"),
    DeliveryTimedOut("orders", 3, 500, True),
    Stopped("the driver is gone"),
    PartitionStopped("orders", 3, 1000, "the destination lost its last 5 records"),
]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (BrokerError(6, "Produce to orders-3"), "Produce to orders-3: error 6 NOT_LEADER_OR_FOLLOWER"),
        (BrokerError(999, "Fetch of orders-3"), "Fetch of orders-3: error 999, unknown to shoal"),
        (
            BrokerError(30, "joining of group g"),
            "joining of group g: error 30 GROUP_AUTHORIZATION_FAILED: the user has no ACL for that. "
            "Grant READ on the group at the source",
        ),
    ],
)
def test_error_names_object_value_and_remedy(error: ShoalError, sentence: str) -> None:
    assert str(error) == sentence


def exceptions() -> set[str]:
    return {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == errors.__name__
    }


def test_exceptions_are_exported_and_have_an_example_here() -> None:
    assert set(errors.__all__) == exceptions() | {"ErrorCode", "named_code", "raise_for"}
    assert {type(error).__name__ for error in EXAMPLES} == exceptions() - {"ShoalError"}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling(error: ShoalError) -> None:
    for received in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert type(received) is type(error)
        assert str(received) == str(error)
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


def test_notebook_shows_the_message_above_the_traceback() -> None:
    try:
        try:
            raise RuntimeError("Spark\n\tat java.lang.Thread")
        except RuntimeError as error:
            raise ShoalError("the topic is gone") from error
    except ShoalError as error:
        lines = error._render_traceback_()
    assert lines[0] == "ShoalError: the topic is gone"
    assert any("java.lang.Thread" in line for line in lines[1:])
