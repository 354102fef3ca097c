"""The verb that runs an embedded broker."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shoal.cli import main
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from tests.broker.wire import Wire


@contextmanager
def running(*options: str) -> Iterator[str]:
    command = [sys.executable, "-m", "shoal", "broker", "--json", "--listen", "127.0.0.1:0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["bootstrap"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_broker_creates_topics_on_first_use_with_the_last_value_of_a_setting() -> None:
    options = ("--config", "num.partitions=2", "--config", "num.partitions=3")
    with running(*options) as address, Wire(address) as wire:
        response = wire.call(ApiKey.METADATA, 12, topics=[_topic("new")], allow_auto_topic_creation=True)
        assert (response.topics[0].error_code, len(response.topics[0].partitions)) == (ErrorCode.NONE, 3)


def test_auto_create_topics_disabled_creates_none() -> None:
    with running("--config", "auto.create.topics.enable=false") as address, Wire(address) as wire:
        response = wire.call(ApiKey.METADATA, 12, topics=[_topic("new")], allow_auto_topic_creation=True)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("server.properties", "--config 'server.properties' is not KEY=VALUE"),
        ("num.partitions=none", "broker: Invalid value none for configuration num.partitions"),
        ("no.such.setting=1", "broker: Unknown configuration no.such.setting"),
    ],
)
def test_broker_with_an_invalid_setting_exits_2(
    capsys: pytest.CaptureFixture[str], text: str, sentence: str
) -> None:
    assert main(["broker", "--listen", "127.0.0.1:0", "--config", text]) == 2
    assert sentence in capsys.readouterr().err


def _topic(name: str) -> object:
    return request_class(ApiKey.METADATA).MetadataRequestTopic(name=name)
