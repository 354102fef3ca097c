"""Options of the command line: their defaults, and properties files."""

import argparse
from pathlib import Path

import pytest

from shoal.cli.mirror import add_parser, parse
from shoal.client.config import IsolationLevel
from shoal.errors import ConfigError
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.net.address import Address
from shoal.option_values import parse_key_values
from shoal.properties_file import read_properties_file
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
