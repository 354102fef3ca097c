"""MirrorMaker 1's command line and files, as ``shoal mirror-maker`` reads them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from shoal.cli import main, make_parser
from shoal.cli.mirror_maker import parse
from shoal.client.offsets import LATEST
from shoal.errors import ConfigError
from shoal.mirroring.model.copy_options import Rebatch
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirrormaker.options import MirrorMakerOptions
from shoal.records import Codec
from tests.snapshots import Texts

Read = Callable[..., MirrorMakerOptions]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Parse a command line with the given properties of both files."""

    def parsed(*arguments: str, consumer: str = "", producer: str = "") -> MirrorMakerOptions:
        (tmp_path / "consumer").write_text(f"bootstrap.servers=a:1,b:2\ngroup.id=makers\n{consumer}")
        (tmp_path / "producer").write_text(f"bootstrap.servers=c:3\n{producer}")
        for name in ("consumer", "producer"):
            (tmp_path / name).chmod(0o600)
        files = [f"--consumer.config={tmp_path}/consumer", f"--producer.config={tmp_path}/producer"]
        says_which = any(each.startswith(("--include", "--whitelist")) for each in arguments)
        given = arguments if says_which else (*arguments, "--include=orders")
        return parse(make_parser().parse_args(["mirror-maker", *files, *given]))

    return parsed


def test_defaults_are_mirror_maker_1_s_lossless_settings(
    read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    options = read()
    mirror = options.mirror
    assert options.streams == 1
    assert mirror.master == "local[1]"
    assert mirror.timing.commit_interval_s == 60
    assert mirror.max_in_flight == 1
    assert IncidentKind.SEND_FAILURE not in mirror.continue_after
    assert mirror.delivery is Delivery.EXACTLY_ONCE
    assert mirror.start.timestamp_ms == LATEST
    assert mirror.rebatch == Rebatch(16_384, Codec.NONE, everything=True)
    assert mirror.keep_append_time
    assert mirror.handling is None
    assert capsys.readouterr().err == ""


OLD_CONSUMER = """\
# what Kafka's own config/consumer.properties says, and files of ten years
zookeeper.connect=localhost:2181
key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
value.deserializer=org.apache.kafka.common.serialization.StringDeserializer
enable.auto.commit=false
exclude.internal.topics=true
client.rack=r1
client.id=x
"""

OLD_PRODUCER = """\
producer.type=sync
metadata.broker.list=localhost:9092
partitioner.class=org.apache.kafka.clients.producer.internals.DefaultPartitioner
key.serializer=org.apache.kafka.common.serialization.ByteArraySerializer
acks=-1
retries=2147483647
max.block.ms=9223372036854775807
compression.type=lz4
linger.ms=100
"""


def test_old_files_work_unchanged(read: Read, capsys: pytest.CaptureFixture[str]) -> None:
    read(consumer=OLD_CONSUMER, producer=OLD_PRODUCER)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 5
    for word in (
        "linger.ms",
        "zookeeper.connect",
        "client.rack",
        "metadata.broker.list",
        "partitioner.class",
    ):
        assert any(word in line and ("no effect" in line or "ignores" in line) for line in said), word


#: Properties with another meaning than they had, each by itself, of the consumer and of the producer.
OTHER_MEANINGS = [
    ("", "acks=1"),
    ("", "enable.idempotence=false"),
    ("", "delivery.timeout.ms=120000"),
    ("auto.commit.enabled=true", ""),
    ("auto.commit.enable=true", ""),
    ("enable.auto.commit=true", ""),
    ("", "block.on.buffer.full=false"),
]


def test_setting_with_another_meaning_warns(
    read: Read, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    for consumer, producer in OTHER_MEANINGS:
        read(consumer=f"{consumer}\n", producer=f"{producer}\n")
    texts(capsys.readouterr().err)


def test_raw_properties_may_repeat_the_option(read: Read, capsys: pytest.CaptureFixture[str]) -> None:
    read("--use.raw.bytes", consumer="fetch.raw.bytes=true\n", producer="send.raw.bytes=true\n")
    read(consumer="fetch.raw.bytes=false\n", producer="send.raw.bytes=false\n")
    assert capsys.readouterr().err == ""


def test_in_flight_above_5_is_reduced_with_a_warning(
    read: Read, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    handler = "--message.handler=a:B"
    mirror = read(handler, producer="max.in.flight.requests.per.connection=20\n").mirror
    texts(capsys.readouterr().err)
    assert mirror.max_in_flight == 5
    assert mirror.handling is not None
    assert mirror.handling.producer["max.in.flight.requests.per.connection"] == "5"


def test_settings_of_kip_3_do_not_warn(read: Read, capsys: pytest.CaptureFixture[str]) -> None:
    read(
        consumer="auto.commit.enabled=false\nauto.commit.enable=false\n",
        producer="max.in.flight.requests.per.connection=1\nretries=2147483647\nacks=-1\n"
        "block.on.buffer.full=true\n",
    )
    assert capsys.readouterr().err == ""


def test_spellings_of_an_option_are_equivalent(read: Read) -> None:
    for option in ("--abort.on.send.failure", "--abort.on.send.fail", "--abortOnSendFail"):
        assert IncidentKind.SEND_FAILURE not in read(option).mirror.continue_after
        assert IncidentKind.SEND_FAILURE in read(option, "False").mirror.continue_after
        assert IncidentKind.SEND_FAILURE not in read(f"{option}=true").mirror.continue_after
    for option in ("--rebalance.listener.args", "--consumer.rebalance.listener.args"):
        assert read("--consumer.rebalance.listener=a:B", option, "x").listener == ("a:B", "x")
    for raw in (["--use.raw.bytes"], ["--use.raw.bytes=true"], ["--use.raw.bytes", "TRUE"]):
        assert read(*raw).mirror.rebatch is None
    assert read("--use.raw.bytes", "false").mirror.rebatch is not None


@pytest.mark.parametrize("option", ["--include", "--whitelist"])
@pytest.mark.parametrize(
    ("text", "matches", "others"),
    [
        ("orders", ["orders"], ["orders2", "my.orders"]),
        ("orders,clicks", ["orders", "clicks"], ["orders,clicks"]),
        ("'a.* , b'", ["a1", "b"], ["b1", "'b"]),
        (".*", ["anything"], []),
    ],
)
def test_topics_are_named_as_for_mirror_maker_1(
    read: Read, option: str, text: str, matches: list[str], others: list[str]
) -> None:
    include = read(f"{option}={text}").include
    assert all(include.fullmatch(each) for each in matches)
    assert not any(include.fullmatch(each) for each in others)


def test_include_overrides_whitelist(read: Read) -> None:
    assert read("--whitelist=a", "--include=b").include.pattern == "b"


#: Wrong options, and wrong lines of a file.
WRONG: list[tuple[list[str], dict[str, str]]] = [
    (["--include="], {}),
    (["--include=("], {}),
    (["--num.streams=0"], {}),
    (["--offset.commit.interval.ms=0"], {}),
    (["--message.handler.args=x"], {}),
    (["--rebalance.listener.args=x"], {}),
    ([], {"consumer": "group.id=\n"}),
    ([], {"consumer": "auto.offset.reset=none\n"}),
    ([], {"consumer": "auto.offset.reset=x\n"}),
    ([], {"consumer": "interceptor.classes=x\n"}),
    ([], {"producer": "transactional.id=x\n"}),
    ([], {"producer": "compression.type=x\n"}),
    ([], {"consumer": "fetch.raw.bytes=true\n"}),
    ([], {"producer": "send.raw.bytes=true\n"}),
    (["--use.raw.bytes"], {"consumer": "fetch.raw.bytes=false\n"}),
    ([], {"consumer": "bootstrap.servers=./archive\n"}),
    ([], {"producer": "bootstrap.servers=./archive\n"}),
]


def test_invalid_options_are_one_sentence(read: Read, texts: Texts) -> None:
    told = []
    for arguments, files in WRONG:
        with pytest.raises(ConfigError) as refused:
            read(*arguments, **files)
        assert all(f"--{name}.config" in str(refused.value) for name in files)
        told.append(str(refused.value))
    texts(told)


def test_secrets_are_not_handler_options_and_not_printed(read: Read) -> None:
    secret = (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hush";\n'
    )
    options = read("--message.handler=a:B", consumer=secret, producer=secret)
    handling = options.mirror.handling
    assert handling is not None
    assert "hush" not in json.dumps(asdict(handling))
    assert "hush" not in repr(options)


@pytest.mark.parametrize(
    "name",
    [
        *("nonsense", "no.such.module:Handler", "shoal.handlers:Nothing", "shoal.handlers:ProducerRecord"),
        "shoal.handlers:MirrorMakerRawBytesMessageHandler",
    ],
)
def test_unusable_class_is_reported_before_the_start(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    for file in ("consumer", "producer"):
        (tmp_path / file).write_text("bootstrap.servers=127.0.0.1:1\ngroup.id=g\n")
    files = [f"--consumer.config={tmp_path}/consumer", f"--producer.config={tmp_path}/producer"]
    code = main(["mirror-maker", *files, "--include=x", f"--message.handler={name}"])
    assert code == 2
    texts(capsys.readouterr().err)


def test_mirror_maker_version_is_shoal_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["mirror-maker", "--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("shoal ")
