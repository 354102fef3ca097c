"""A file that a verb writes replaces a symbolic link of its name; the link's target stays as it is."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.shoal import Shoal
from shoal.cli import main
from shoal_broker import Broker
from tests.integration.shared_spark import shoal
from tests.world import batches

PRECIOUS = "precious\n"


@pytest.fixture
def brokers() -> Iterator[tuple[str, str]]:
    """Two equal clusters."""
    with Broker(cluster_id="source") as source, Broker(cluster_id="destination") as destination:
        for broker in (source, destination):
            broker.create_topic("orders")
            broker.log("orders", 0).store(bytes(batches.batch([b"a"])))
        yield source.bootstrap, destination.bootstrap


class Planted:
    """A link, as another user can plant it, to a file in a closed directory."""

    def __init__(self, directory: Path) -> None:
        shared, home = directory / "shared", directory / "home"
        shared.mkdir()
        home.mkdir(mode=0o700)
        self.target = home / "authorized_keys"
        self.target.write_text(PRECIOUS)
        self.target.chmod(0o600)
        self.link = shared / "result"
        self.link.symlink_to(self.target)

    def check(self) -> None:
        """Check that the result is in the place of the link, and that the target is as before."""
        assert self.target.read_text() == PRECIOUS
        assert stat.S_IMODE(self.target.stat().st_mode) == 0o600
        assert not self.link.is_symlink()
        assert self.link.stat().st_size > 0


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path)


def test_report_of_inspect_replaces_a_link(brokers: tuple[str, str], planted: Planted) -> None:
    assert main(["inspect", "--from", brokers[0], "--topics", "orders", "--report", str(planted.link)]) == 0
    planted.check()


def test_report_of_verify_replaces_a_link(brokers: tuple[str, str], planted: Planted) -> None:
    source, destination = brokers
    command = ["verify", "--from", source, "--to", destination, "--topics", "orders"]
    assert main([*command, "--report", str(planted.link)]) == 0
    planted.check()


def test_state_of_verify_is_not_read_through_a_link(
    brokers: tuple[str, str], planted: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, destination = brokers
    command = ["verify", "--from", source, "--to", destination, "--topics", "orders", "--state"]
    (tmp_path / "own").symlink_to(tmp_path / "nothing")
    for link in (planted.link, tmp_path / "own"):
        assert main([*command, str(link)]) == 2
        assert f"{str(link)!r}" in capsys.readouterr().err
        assert link.is_symlink()
    assert planted.target.read_text() == PRECIOUS


def test_directory_may_be_a_link(brokers: tuple[str, str], planted: Planted, tmp_path: Path) -> None:
    (tmp_path / "reports").symlink_to(planted.link.parent)
    file = tmp_path / "reports" / "result"
    assert main(["inspect", "--from", brokers[0], "--topics", "orders", "--report", str(file)]) == 0
    planted.check()


@pytest.mark.parametrize("file", ["/dev/stdout", "/proc/self/fd/1", "..", "/"])
def test_name_of_no_file_is_refused_before_the_work(brokers: tuple[str, str], file: str) -> None:
    before = Path("/dev/stdout").readlink()
    command = ["inspect", "--from", brokers[0], "--topics", "orders", "--report", file]
    with Shoal(*command) as run:  # its stdout is a file, which the name leads to
        run.wait()
    assert run.exit_code == 2, run.stderr
    assert f"--report {file}: " in run.stderr
    assert Path("/dev/stdout").readlink() == before
    assert run.stdout == ""


@pytest.mark.integration
def test_report_of_a_mirror_replaces_a_link(
    brokers: tuple[str, str], planted: Planted, tmp_path: Path
) -> None:
    source, destination = brokers
    command = ["mirror", "--from", source, "--to", destination, "--topics", "orders", "--once"]
    done = shoal(
        *command, "--continue-after", "foreign-records", "--report", str(planted.link), state=tmp_path
    )
    assert planted.link.exists(), done.stderr
    planted.check()
