"""``--config FILE``: every option in a TOML file, and the command line wins."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.cli import main, make_parser
from shoal.cli.layers import with_lower_layers
from shoal.cli.mirror import parse
from shoal.cli.parser import options_of, verb_parser
from shoal.declare import given
from shoal.errors import ConfigError
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.steering import SteeringOptions
from shoal_broker.cli.broker import make_parser as make_broker_parser
from tests.snapshots import Texts

MINIMUM = 'from = "a:1"\nto = "b:2"\ntopics = "x"\n'

Read = Callable[..., argparse.Namespace]


def below(parser: argparse.ArgumentParser, arguments: list[str], **environ: str) -> list[str]:
    """Return the arguments with those of the file and of the environment; no variable is unknown."""
    found, unknown = with_lower_layers(parser, arguments, environ)
    assert unknown == []
    return found


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that parses a file's text together with a command line."""
    file = tmp_path / "mirror.toml"

    def read(text: str, *arguments: str) -> argparse.Namespace:
        file.write_text(text, encoding="utf-8")
        parser = make_parser()
        return parser.parse_args(below(parser, ["mirror", "--config", str(file), *arguments]))

    return read


def mirror_parser() -> argparse.ArgumentParser:
    parser = verb_parser(make_parser(), "mirror")
    assert parser is not None
    return parser


#: Of each option: the text in the file, and the equivalent command line.
SAYINGS = {
    "from": ('["a:1", "a:2"]', ["a:1,a:2"]),
    "from-config": ('"from.properties"', ["DIRECTORY/from.properties"]),
    "to": ('"b:2"', ["b:2"]),
    "to-config": ('"/etc/to.properties"', ["/etc/to.properties"]),
    "topics": ('["orders", "payments\\\\..*"]', ["orders,payments\\..*"]),
    "exclude": ('"-.*"', ["-.*"]),
    "rename": (r"'(.*)=west.\1'", [r"(.*)=west.\1"]),
    "group": ('"g"', ["g"]),
    "from-certificate": ('"cut.json"', ["DIRECTORY/cut.json"]),
    "once": ("true", []),
    "start": ("2026-01-31T12:00:00Z", ["2026-01-31T12:00:00+00:00"]),
    "until": ("2026-01-31T13:00:00Z", ["2026-01-31T13:00:00+00:00"]),
    "last": ('"1h"', ["1h"]),
    "replication-factor": ("2", ["2"]),
    "adopt": ("true", []),
    "fetch-buffer-bytes": ("8388608", ["8388608"]),
    "segment-bytes": ("8388608", ["8388608"]),
    "segment-seconds": ("60", ["60"]),
    "refresh": ("60", ["60"]),
    "max-new-partitions": ("50", ["50"]),
    "sync": ('["configs", "acls"]', ["configs,acls"]),
    "groups": ("'orders-.*'", ["orders-.*"]),
    "control": ('"control.sock"', ["DIRECTORY/control.sock"]),
    "limit": ("50000000", ["50000000"]),
    "pause": ('["orders", "payments.*"]', ["orders,payments.*"]),
    "continue-after": ('["source-reset", "source-retention"]', ["source-reset,source-retention"]),
    "delivery": ('"at-least-once"', ["at-least-once"]),
    "rebatch": ('"64k:zstd"', ["64k:zstd"]),
    "metrics-by": ('"topic"', ["topic"]),
    "metrics": ('"[::1]:9100"', ["[::1]:9100"]),
    "http-token-file": ('"token"', ["DIRECTORY/token"]),
    "ui": ('"localhost:8080"', ["localhost:8080"]),
    "report": ('"../run.html"', ["DIRECTORY/../run.html"]),
    "dry-run": ("true", []),
    "master": ('"local[2]"', ["local[2]"]),
    "checkpoint": ('"state"', ["DIRECTORY/state"]),
    "conf": ('{ "spark.a" = "1=2", spark.b.c = 3 }', ["spark.a=1=2", "spark.b.c=3"]),
    "json": ("true", []),
    "verbose": ("true", []),
}


def test_every_option_of_help_can_be_set_in_the_file(read: Read, tmp_path: Path) -> None:
    listed = {
        action.option_strings[-1].removeprefix("--")
        for action in options_of(mirror_parser())
        if action.help != argparse.SUPPRESS
    }
    assert listed - {"help", "config"} == set(SAYINGS)
    options = [
        f"--{key}={value.replace('DIRECTORY', str(tmp_path))}"
        for key, (_, values) in SAYINGS.items()
        for value in values
    ]
    flags = [f"--{key}" for key, (_, values) in SAYINGS.items() if not values]
    expected = make_parser().parse_args(["mirror", *options, *flags])
    args = read("\n".join(f"{key} = {text}" for key, (text, _) in SAYINGS.items()))
    assert {**vars(args), "config": None} == vars(expected)


def test_flag_of_the_file_is_unset_by_the_command_line(read: Read) -> None:
    flags = [key for key, (_, values) in SAYINGS.items() if not values]
    true = "".join(f"{key} = true\n" for key in flags)
    args = read(MINIMUM + true, *(f"--no-{key}" for key in flags))
    assert {**vars(args), "config": None} == vars(
        make_parser().parse_args(["mirror", "--from=a:1", "--to=b:2", "--topics=x"])
    )


def test_flag_false_in_the_file_is_set_by_the_command_line(read: Read) -> None:
    assert read(MINIMUM + "once = false", "--once").once


def test_command_line_overrides_the_file_in_any_order(tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text(MINIMUM + 'start = "latest"\nconf = { "spark.a" = "1", "spark.b" = "1" }')
    parser = make_parser()
    arguments = ["mirror", "--topics=y", "--conf", "spark.b=2", f"--config={file}"]
    options: MirrorOptions = parse(parser.parse_args(below(parser, arguments)))
    assert options.topics.topics == "y"
    assert str(options.start) == "latest"
    assert options.conf == (("spark.a", "1"), ("spark.b", "2"))


def test_conf_section_is_read_as_key_values(read: Read) -> None:
    args = read(MINIMUM + '[conf]\nspark.executor.memory = "2g"\n"spark.ui.enabled" = true\n')
    assert args.conf == ["spark.executor.memory=2g", "spark.ui.enabled=true"]


def test_time_without_offset_is_utc(read: Read) -> None:
    for text in ("2026-01-31T12:00:00", "2026-01-31T12:00:00Z", '"2026-01-31T12:00:00"', "1769860800000"):
        assert str(parse(read(MINIMUM + f"start = {text}")).start) == "1769860800000"


#: Texts of a file, each with one mistake.
MISTAKES = [
    'topcis = "x"',
    'from_config = "x"',
    '"--once" = true',
    '[mirror]\nfrom = "a:1"',
    '[cnof]\n"spark.ui.port" = 1',
    "no-once = true",
    'config = "other.toml"',
    "help = true",
    'once = "yes"',
    'group = ["a"]',
    "max-new-partitions = 7.0",
    "replication-factor = true",
    "fetch-buffer-bytes = 1.5",
    "start = 12:00:00",
    'delivery = "twice"',
    "continue-after = true",
    'conf = "spark.a=1"',
    'conf = { "spark.a" = ["1"] }',
    "topics",
    'topics = "a"\ntopics = "b"',
]


def test_invalid_value_in_the_file_names_file_and_option(read: Read, texts: Texts) -> None:
    told = []
    for text in MISTAKES:
        with pytest.raises(ConfigError) as error:
            read(text)
        told.append(f"{text}\n  {str(error.value).partition('mirror.toml: ')[2]}")
    texts(told)


def test_invalid_file_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], texts: Texts) -> None:
    file = tmp_path / "mirror.toml"
    file.write_bytes(b"topics = '\xff'")
    for path in (file, tmp_path, "nowhere"):
        assert main(["mirror", "--config", str(path)]) == 2
        texts(capsys.readouterr().err)


def test_required_option_in_neither_is_named(read: Read) -> None:
    with pytest.raises(ConfigError, match="--topics"):
        read('from = "a:1"')


def test_config_option_of_another_program_is_left_alone() -> None:
    arguments = ["--config", "num.partitions=2"]
    assert below(make_broker_parser(), arguments) == arguments


def test_unfinished_config_option_is_left_to_the_parser() -> None:
    parser = make_parser()
    for unfinished in ([], ["mirror"], ["mirror", "--config"], ["nonsense", "--config", "x"], ["--help"]):
        assert below(parser, unfinished) == unfinished


def test_documented_steering_is_read_from_a_file(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")
    text = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert text
    file = tmp_path / "steered.toml"
    file.write_text(text[1])
    parser = make_parser("mirror")
    args = parser.parse_args(below(parser, ["mirror", "--config", str(file)]))
    assert given(SteeringOptions, vars(args)) == {
        "limit": 50 * 1024**2,
        "pause": ("audit", r"logs\..*"),
        "control": "/run/shoal/orders.sock",
    }


# The environment


ENVIRONMENT = {
    "SHOAL_MIRROR_FROM": "a:1",
    "SHOAL_MIRROR_TO": "b:2",
    "SHOAL_MIRROR_TOPICS": "x,y",
    "SHOAL_MIRROR_ONCE": "true",
    "SHOAL_MIRROR_FETCH_BUFFER_BYTES": "8m",
    "SHOAL_MIRROR_CONF": "spark.a=1 spark.b=2",
}


def test_environment_has_options_under_their_names() -> None:
    parser = make_parser()
    options = parse(parser.parse_args(below(parser, ["mirror"], **ENVIRONMENT)))
    assert options.topics.topics == "x,y"
    assert options.once
    assert options.fetch_buffer_bytes == 8 << 20
    assert options.conf == (("spark.a", "1"), ("spark.b", "2"))


def test_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text('topics = "file"\ngroup = "file"\nstart = "latest"\nonce = true')
    more = {"SHOAL_MIRROR_CONFIG": str(file), "SHOAL_MIRROR_GROUP": "environment"}
    parser = make_parser()
    arguments = ["mirror", "--topics", "line", "--no-once"]
    options = parse(parser.parse_args(below(parser, arguments, **(ENVIRONMENT | more))))
    assert (options.topics.topics, options.group, str(options.start)) == ("line", "environment", "latest")
    assert not options.once


def test_value_that_is_no_choice_has_one_sentence_wherever_it_comes_from() -> None:
    parser, sentences = make_parser(), set()
    for more, environment in (["--delivery=twice"], {}), ([], {"SHOAL_MIRROR_DELIVERY": "twice"}):
        arguments = ["mirror", "--from=a:1", "--to=b:2", "--topics=x", *more]
        with pytest.raises(ConfigError) as raised:
            parse(parser.parse_args(below(parser, arguments, **environment)))
        sentences.add(str(raised.value))
    with pytest.raises(ConfigError) as raised:
        MirrorOptions("a:1", "b:2", "x", delivery="twice")  # type: ignore[arg-type]
    assert sentences == {str(raised.value)}
    assert all(each in str(raised.value) for each in ("--delivery", "'twice'", "exactly-once"))


def test_flag_of_the_environment_is_true_or_false() -> None:
    with pytest.raises(ConfigError, match=r"^SHOAL_MIRROR_ONCE: 'yes'"):
        with_lower_layers(make_parser(), ["mirror"], {"SHOAL_MIRROR_ONCE": "yes"})


def test_unknown_variable_of_the_verb_is_a_warning(texts: Texts) -> None:
    _, unknown = with_lower_layers(make_parser(), ["mirror"], {"SHOAL_MIRROR_TOPCIS": "x"})
    texts(unknown)


def test_unknown_variable_is_named_although_a_required_option_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOAL_MIRROR_TOPIC", "orders")
    assert main(["mirror", "--from", "a:1", "--to", "b:2"]) == 2
    warning, error = capsys.readouterr().err.splitlines()
    assert "SHOAL_MIRROR_TOPIC has no effect" in warning
    assert "Did you mean SHOAL_MIRROR_TOPICS?" in warning
    assert "--topics" in error


@pytest.mark.parametrize(
    "name",
    [
        "SHOAL_MIRROR_SERVICE_HOST",
        "SHOAL_MIRROR_SERVICE_PORT_METRICS",
        "SHOAL_MIRROR_PORT",
        "SHOAL_MIRROR_PORT_9100_TCP",
        "SHOAL_MIRROR_PORT_9100_TCP_ADDR",
        "SHOAL_MIRROR_ORDERS_SERVICE_PORT",
        "SHOAL_MIRROR_MAKER_NUM_STREAMS",
        "SHOAL_VERIFY_TOPICS",
        "SHOAL",
        "PATH",
    ],
)
def test_variable_of_kubernetes_or_of_another_verb_is_ignored(name: str) -> None:
    assert with_lower_layers(make_parser(), ["mirror"], {name: "x"}) == (["mirror"], [])


def test_dots_of_an_option_are_underscores_in_its_variable() -> None:
    arguments, _ = with_lower_layers(make_parser(), ["mirror-maker"], {"SHOAL_MIRROR_MAKER_NUM_STREAMS": "2"})
    assert arguments == ["mirror-maker", "--num.streams=2"]
