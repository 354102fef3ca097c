import argparse
from pathlib import Path

import pytest

from shoal.cli.mirror import add_parser, parse
from shoal.client.config import IsolationLevel
from shoal.client.offsets import LATEST
from shoal.errors import ConfigError
from shoal.mirroring.model.copy_options import Rebatch
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.model.window import Start
from shoal.net.address import Address
from shoal.option_values import parse_key_values
from shoal.properties_file import read_properties_file
from shoal.records import Codec
from tests.snapshots import Texts


def parsed(*arguments: str) -> MirrorOptions:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    return parse(parser.parse_args(["mirror", *arguments]))


def test_defaults_are_those_of_the_options() -> None:
    options = parsed("--from", "a:1", "--to", "b:2", "--topics", "x")
    assert options == MirrorOptions(options.source, options.destination, TopicSelection("x"))
    assert (options.source.bootstrap, options.destination.bootstrap) == (
        (Address("a", 1),),
        (Address("b", 2),),
    )


def test_every_option_is_parsed_into_its_field() -> None:
    options = parsed(
        *(
            "--from",
            "a:1,a:2",
            "--to",
            "b:2",
            "--topics",
            "x",
            "--exclude",
            "y",
            "--rename",
            "x=z",
            "--group",
            "g",
        ),
        *(
            "--once",
            "--start",
            "latest",
            "--replication-factor",
            "2",
            "--delivery=at-least-once",
            "--continue-after=source-retention,foreign-records",
            "--keep-append-time",
            "--rebatch=64k:zstd",
            "--master",
            "local",
        ),
        *("--refresh=5", "--metrics", "[::1]:9100", "--ui", "localhost:0"),
        *("--report", "run.html"),
        *("--fetch-buffer-bytes", "8m", "--checkpoint", "c"),
        *("--conf", "spark.a=1=2", "--conf", "spark.b = 3"),
    )
    assert options == MirrorOptions(
        options.source,
        options.destination,
        TopicSelection("x", "y", "x=z"),
        group="g",
        once=True,
        start=Start(LATEST),
        replication_factor=2,
        refresh_s=5.0,
        metrics=Address("::1", 9100),
        ui=Address("localhost", 0),
        report="run.html",
        master="local",
        checkpoint="c",
        conf=(("spark.a", "1=2"), ("spark.b", "3")),
        fetch_buffer_bytes=8 << 20,
        delivery=Delivery.AT_LEAST_ONCE,
        continue_after=frozenset({IncidentKind.SOURCE_RETENTION, IncidentKind.FOREIGN_RECORDS}),
        keep_append_time=True,
        rebatch=Rebatch(65_536, Codec.ZSTD),
    )
    assert options.source.bootstrap == (Address("a", 1), Address("a", 2))


def test_option_overrides_the_properties_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "source.properties"
    file.write_text("# by Kafka's tools\nbootstrap.servers = old:1\nisolation.level: read_uncommitted\n")
    options = parsed("--from", "new:2", "--from-config", str(file), "--to", "b:2", "--topics", "x")
    assert options.source.bootstrap == (Address("new", 2),)
    assert options.source.isolation_level is IsolationLevel.READ_UNCOMMITTED
    assert capsys.readouterr() == ("", "")


def test_property_without_effect_is_a_warning_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    file = tmp_path / "source.properties"
    file.write_text("bootstrap.servers=a:1\nfetch.min.bites=1\n")
    parsed("--from-config", str(file), "--to", "b:2", "--topics", "x")
    out, err = capsys.readouterr()
    assert out == ""
    texts(err)


def test_properties_are_latin_1_with_java_s_escapes(tmp_path: Path) -> None:
    file = tmp_path / "a.properties"
    file.write_bytes(b"! comment\nclient.id=caf\xe9 \\u00e9\\\n   more\nempty\n")
    assert read_properties_file("--from-config", str(file)) == {"client.id": "café émore", "empty": ""}


@pytest.mark.parametrize("text", ["a", "=1", " =1"])
def test_text_without_key_and_value_is_refused(text: str, texts: Texts) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_key_values("--conf", [text])
    texts(str(raised.value))
