"""Brokers' messages that print Java objects."""

from __future__ import annotations

import pytest

from shoal.broker_message import without_objects
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError

REQUEST = (
    "Request Request(processor=2, connectionId=127.0.0.1:9092-1, session=org.apache.kafka.network.Session@"
    "528e2f25, header=Header(apiKey=29), buffer=null, envelope=None) needs DESCRIBE permission."
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (REQUEST, "Request needs DESCRIBE permission."),
        (REQUEST[:60], "Request"),
        ("refused by kafka.Authorizer@1a2b3c4d now", "refused by now"),
        ("Topic config (cleanup.policy=x) is wrong", "Topic config (cleanup.policy=x) is wrong"),
        ("partition(s) missing, see a(b)", "partition(s) missing, see a(b)"),
        ("", ""),
    ],
)
def test_message_of_a_broker_is_printed_without_its_objects(message: str, expected: str) -> None:
    assert without_objects(message) == expected


def test_broker_error_prints_no_object() -> None:
    error = BrokerError(ErrorCode.INVALID_REQUEST, "the ACLs of b", REQUEST)
    assert str(error) == "the ACLs of b: error 42 INVALID_REQUEST (Request needs DESCRIBE permission.)"
