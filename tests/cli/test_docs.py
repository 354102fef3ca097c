"""The documentation matches the command line."""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from shoal.cli import make_parser
from shoal.cli.completion import SHELLS
from shoal.cli.layers import with_lower_layers
from shoal.cli.parser import options_of
from shoal.exit_codes import EXIT_CONTINUED, EXIT_USAGE

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def _loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return _loaded("generate_cli")


def test_cli_page_equals_the_help(generator: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    written = generator.PAGE.read_text(encoding="utf-8")
    # Versions of Python break lines differently.
    assert written.split() == generator.page().split(), "run python docs/generate_cli.py"


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_equals_the_command_line(generator: ModuleType, shell: str) -> None:
    written = (generator.SCRIPTS / f"shoal.{shell}").read_text(encoding="utf-8")
    assert written == generator.script(shell), "run python docs/generate_cli.py"


def test_tables_of_metrics_equal_the_declarations() -> None:
    metrics = _loaded("generate_metrics")
    written = metrics.PAGE.read_text(encoding="utf-8")
    assert written == metrics.page(written), "run python docs/generate_metrics.py"
    for name in metrics.TABLES:
        assert f"<!-- numbers: {name} -->" in written


def test_every_option_has_a_help_text(generator: ModuleType) -> None:
    for parser in generator.verbs(make_parser()).values():
        for action in options_of(parser):
            assert action.help, action.option_strings


def test_every_verb_has_an_example_that_parses(generator: ModuleType) -> None:
    parser = make_parser()
    for name, verb in generator.verbs(parser).items():
        text = (verb.epilog or "").replace("\\\n", " ")
        examples = [line.strip() for line in text.splitlines() if line.startswith(f"  shoal {name} ")]
        assert examples, name
        assert all(f"  {example}" in verb.format_help().replace("\\\n", " ") for example in examples)
        for example in examples:
            parser.parse_args(shlex.split(example)[1:])


def test_documented_config_file_is_read_as_described(tmp_path: Path) -> None:
    page = (DOCS / "operating.md").read_text(encoding="utf-8")
    text = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert text
    (tmp_path / "orders.toml").write_text(text[1])
    parser = make_parser()
    args = parser.parse_args(
        with_lower_layers(parser, ["mirror", "--config", str(tmp_path / "orders.toml")], {})[0]
    )
    assert args.from_config == str(tmp_path / "source.properties")
    assert args.topics == r"orders,payments\..*"
    assert args.rename == r"(.*)=west.\1"
    assert args.conf == ["spark.executor.memory=2g"]


#: Of Markdown: ``[text](path#heading)``. Addresses with a scheme are not looked at, nor the README's badges:
#: GitHub's own pages, relative to the README's address, so that they are right in each fork.
LINK = re.compile(r"\]\((?![a-z]+:|\.\./\.\./actions/)([^)#\s]*)(?:#([^)\s]+))?\)")


def headings(document: Path) -> set[str]:
    """Return the anchors that GitHub gives a document's headings."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    "document", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))], ids=lambda path: path.name
)
def test_relative_link_leads_to_a_file_and_to_a_heading(document: Path) -> None:
    broken = [
        f"{path}#{heading}"
        for path, heading in LINK.findall(document.read_text(encoding="utf-8"))
        if not (target := document.parent / path if path else document).exists()
        or (heading and target.suffix == ".md" and heading not in headings(target))
    ]
    assert broken == []


def systemd_unit() -> str:
    text = re.search(r"```ini\n(.*?)```", (DOCS / "operating.md").read_text(encoding="utf-8"), re.DOTALL)
    assert text
    return text[1]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "shoal-mirror@orders.service"
    # The unit's program has to exist.
    unit.write_text(systemd_unit().replace("/opt/shoal/bin/shoal", sys.executable))
    run = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_systemd_unit_has_the_exit_codes() -> None:
    lines = systemd_unit().splitlines()
    assert f"RestartPreventExitStatus={EXIT_USAGE}" in lines
    assert f"SuccessExitStatus={EXIT_CONTINUED}" in lines


@pytest.mark.parametrize("name", ["moving-a-cluster.md", "from-mirrormaker.md"])
def test_documented_command_parses(name: str) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^ *\$ (shoal .*)$", page, re.MULTILINE)
    inline = [each for each in re.findall(r"`(shoal \w+ --from [^`]*)`", page) if "…" not in each]
    assert len(blocks) + len(inline) > 3
    for command in (*blocks, *inline):
        make_parser().parse_args(shlex.split(command)[1:])
