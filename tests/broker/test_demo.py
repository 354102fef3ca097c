"""``shoal-demo`` as a user runs it, with a small load."""

import json
import subprocess
import sys

import pytest

from shoal_broker.cli.demo import main
from shoal_broker.demo import TOPICS
from tests.spark.mirror_command import complaints


@pytest.mark.integration
def test_demo_copies_every_record_of_every_kind() -> None:
    command = "import sys; from shoal_broker.cli.demo import main; sys.exit(main())"
    arguments = [sys.executable, "-c", command, "--megabytes", "4", "--json"]
    run = subprocess.run(arguments, capture_output=True, text=True, timeout=240, check=False)
    assert (run.returncode, complaints(run.stderr)) == (0, "")
    objects = {each["type"]: each for each in map(json.loads, run.stdout.splitlines())}
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
