"""Cut-overs and ways back from outside: clusters and commands in; records, exit codes and messages out."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests import batches
from tests.integration.mirror_process import MirrorProcess, shoal
from tests.two_brokers import NOW_MS, History, TwoBrokers, content_of, lose_tail

pytestmark = pytest.mark.timeout(120)


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_way_back_from_a_log_that_lost_its_tail_and_grew_again_is_refused(tmp_path: Path) -> None:
    with TwoBrokers.started() as two:
        for topic in ("whole", "torn"):
            two.topic(topic)[0].plain(3, 4, 2)
        between = (
            "--from",
            two.source.bootstrap,
            "--to",
            two.destination.bootstrap,
            "--topics",
            "whole,torn",
        )
        file = str(tmp_path / "cut.json")
        with MirrorProcess(*between, state=tmp_path) as mirror:
            mirror.wait_for(lambda line: line.get("records", 0) == 18)
            moved = ("--groups", ".*", "--allow-drift", "acls", "--quiet-s", "1", "--certificate", file)
            cut = shoal("cutover", *between, *moved, state=tmp_path)
            assert cut.returncode == 0, cut.stderr
            mirror.send_signal(signal.SIGTERM)
            mirror.wait()

        torn = lose_tail(two.destination, "torn", 7)
        assert torn.log_end_offset == 7
        two.destination.log("whole").begin_leader_epoch(1)  # a new leader that has all records
        for topic in ("whole", "torn"):
            log = two.destination.log(topic)
            grown = History(log)
            for number in range(5):
                value = b"%s %d" % (topic.encode(), number)
                new = batches.batch(
                    [value], base_offset=grown.next_offset, base_timestamp=NOW_MS, leader_epoch=1
                )
                grown.store(new, shown=True)

        back = ("mirror", "--from", two.destination.bootstrap, "--to", two.source.bootstrap, "--once")
        before = content_of(two.source.log("torn"))
        for more in (("--dry-run",), ()):
            refused = shoal(
                *back, "--topics", "torn", "--from-certificate", file, *more, state=tmp_path, own_process=True
            )
            assert refused.returncode == 2, (refused.stdout, refused.stderr)
            sentence = refused.stderr.splitlines()[-1]
            assert "torn-0 has lost its records from 7 up to the cut at 9" in sentence
            assert "--rename" in sentence
        assert content_of(two.source.log("torn")) == before

        done = shoal(*back, "--topics", "whole", "--from-certificate", file, state=tmp_path, own_process=True)
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert content_of(two.source.log("whole")) == content_of(two.destination.log("whole"))
