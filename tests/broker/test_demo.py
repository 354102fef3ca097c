"""``shoal-demo`` as a user runs it, with a small load."""

import json
import re
import sys
from pathlib import Path

import pytest

from rig.shoal import DEMO, run_shoal
from shoal_broker.cli.demo import main
from shoal_broker.demo import TOPICS
from tests.spark.mirror_command import complaints

README = Path(__file__).parents[2] / "README.md"


def run_demo(*options: str) -> str:
    """Run the demo with a small load, and return its output."""
    run = run_shoal("--megabytes", "4", *options, program=DEMO)
    others = [line for line in run.stderr.splitlines() if not re.match(r"shoal: (?!warning)", line)]
    assert (run.returncode, complaints("\n".join(others))) == (0, "")
    return run.stdout


def shape_of(output: str) -> list[str]:
    """Return the lines without the progress, each without its numbers and names of the run."""
    lines = [line for line in output.splitlines() if not line.startswith("shoal: ")]
    for varies in (r"(?<=^group ).*", r"(?<=^Spark's log ).*", r"(?<=^inner loops ).*", r"\d[\d.,]*\d|\d"):
        lines = [re.sub(varies, "…", " ".join(line.split())) for line in lines]
    return lines


@pytest.mark.integration
def test_demo_prints_the_lines_of_the_readme() -> None:
    _, _, shown = README.read_text(encoding="utf-8").partition("$ make demo\n")
    output = run_demo()
    assert shape_of(output) == shape_of(shown.partition("```")[0])
    loaded = re.findall(rf"^(?:{'|'.join(topic.name for topic in TOPICS)}) +\d+ +\w+ +([\d,]+)", output, re.M)
    (copied,) = re.findall(r"^records +([\d,]+)", output, re.M)
    (read,) = re.findall(r"reads ([\d,]+) records", output)
    assert sum(int(each.replace(",", "")) for each in loaded) == int(copied.replace(",", ""))
    assert (len(loaded), copied) == (len(TOPICS), read)


@pytest.mark.long
def test_demo_copies_every_record_of_every_kind() -> None:
    run = run_demo("--json")
    objects = {each["type"]: each for each in map(json.loads, run.splitlines())}
    loaded = objects["loaded"]["topics"]
    assert {topic.codec for topic in TOPICS} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert set(loaded) == {topic.name for topic in TOPICS}
    assert loaded["payments"]["aborted"] > 0
    records = {name: each["records"] for name, each in loaded.items()}
    assert objects["counted"]["records"] == records
    assert objects["summary"]["records"] == sum(records.values())
    assert (objects["verify"]["outcome"], objects["verify"]["records"]) == ("equal", sum(records.values()))


def test_demo_without_confluent_kafka_names_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert (out, "pip install 'shoal[demo]'" in err) == ("", True)
