"""The documentation says what the command line does."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from shoal.cli import VERBS, make_parser
from shoal.cli.config_file import with_config_file
from shoal.mirroring.topic_configs import COPIED_ALWAYS, COPIED_WHERE_SET

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_cli", DOCS / "generate_cli.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_help_says(generator, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    written = generator.PAGE.read_text(encoding="utf-8")
    # Where lines break differs between versions of Python.
    assert written.split() == generator.page().split(), "run python docs/generate_cli.py"


def test_every_verb_is_documented(generator):
    page = generator.PAGE.read_text(encoding="utf-8")
    names = generator.verbs(make_parser())
    assert len(names) == len(VERBS)
    for name in names:
        assert f"## shoal {name}\n" in page


def test_every_option_has_a_help_text(generator):
    for parser in generator.verbs(make_parser()).values():
        for action in parser._actions:
            assert action.help, action.option_strings


def test_every_topic_config_that_is_copied_is_documented():
    page = (DOCS / "topics.md").read_text(encoding="utf-8")
    for name in (*COPIED_ALWAYS, *COPIED_WHERE_SET):
        assert f"`{name}`" in page


def test_the_file_in_the_documentation_is_read_as_it_says(tmp_path):
    page = (DOCS / "config-file.md").read_text(encoding="utf-8")
    text = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert text
    (tmp_path / "orders.toml").write_text(text[1])
    parser = make_parser()
    args = parser.parse_args(with_config_file(parser, ["mirror", "--config", str(tmp_path / "orders.toml")]))
    assert args.from_config == str(tmp_path / "source.properties")
    assert args.topics == r"orders,payments\..*"
    assert args.rename == r"(.*)=west.\1"
    assert args.conf == ["spark.executor.memory=2g"]
