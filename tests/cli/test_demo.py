"""``shoal demo`` as a user runs it, with a small load."""

import json
import subprocess
import sys

import pytest

from shoal_broker.demo import TOPICS
from tests.spark.mirror_command import complaints


@pytest.mark.integration
def test_demo_copies_every_record_of_every_kind() -> None:
    command = [sys.executable, "-m", "shoal", "demo", "--megabytes", "4", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
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


def test_demo_without_confluent_kafka_names_the_package() -> None:
    hidden = "import sys; sys.modules['confluent_kafka'] = None; from shoal.cli import main; sys.exit(main())"
    run = subprocess.run(
        [sys.executable, "-c", hidden, "demo"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "shoal: the demo needs confluent-kafka: pip install 'shoal[demo]'\n"
