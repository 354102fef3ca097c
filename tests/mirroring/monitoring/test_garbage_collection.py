"""The counters that a JVM publishes: a file made by hand, and a real JVM's."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rig import java
from shoal.mirroring.control.protocol import process_name
from shoal.mirroring.model.progress import GarbageCollection
from shoal.mirroring.monitoring.processes import LocalProcesses, collections_of
from tests.world.waiting import wait_until

PROCESS = 4711

PROGRAM = """
public class Collects {
    public static void main(String[] arguments) throws Exception {
        System.in.read();
        System.gc();
        System.gc();
        System.out.println("collected");
        System.in.read();
    }
}
"""


def entry(name: str, value: int) -> bytes:
    named = name.encode() + b"\0"
    named += bytes(-len(named) % 8 + 4)  # the header has 20 bytes, and data lies at a multiple of 8
    data_at = 20 + len(named)
    return (
        struct.pack("<iiiccbbi", data_at + 8, 20, 0, b"J", b"\1", 1, 3, data_at)
        + named
        + struct.pack("<q", value)
    )


def counters_file(counters: Mapping[str, int]) -> bytes:
    entries = [entry(name, value) for name, value in counters.items()]
    header = bytes.fromhex("cafec0c0") + bytes([1, 2, 0, 1])
    return header + struct.pack("<iiqii", 0, 0, 0, 32, len(entries)) + b"".join(entries)


def publish(directory: Path, *collectors: tuple[int, int]) -> None:
    counters = {"java.threads.live": 5, "sun.os.hrt.frequency": 1000}
    for number, (pauses, ticks) in enumerate(collectors):
        name = f"sun.gc.collector.{number}"
        counters |= {f"{name}.invocations": pauses, f"{name}.time": ticks, f"{name}.lastExitTime": 950}
    (directory / str(PROCESS)).write_bytes(counters_file(counters))


def test_collections_are_those_of_all_collectors(tmp_path: Path) -> None:
    publish(tmp_path, (4, 250), (1, 500))
    assert collections_of(PROCESS, tmp_path) == GarbageCollection(5, 0.75)


def test_truncated_counter_file_does_not_raise(tmp_path: Path) -> None:
    publish(tmp_path, (4, 250))
    whole = (tmp_path / str(PROCESS)).read_bytes()
    for size in range(len(whole)):
        (tmp_path / str(PROCESS)).write_bytes(whole[:size])
        assert collections_of(PROCESS, tmp_path) is None
    (tmp_path / str(PROCESS)).write_bytes(b"another JVM's" * 10)
    assert collections_of(PROCESS, tmp_path) is None


def test_counters_in_a_directory_of_another_user_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, (4, 250))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert collections_of(PROCESS, tmp_path) is None


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere JVMs keep the file in another directory")
def test_real_jvm_publishes_two_collections(tmp_path: Path) -> None:
    (tmp_path / "Collects.java").write_text(PROGRAM)
    with subprocess.Popen(
        [java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", str(tmp_path / "Collects.java")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as jvm:
        assert jvm.stdin
        assert jvm.stdout
        wait_until(lambda: collections_of(jvm.pid) is not None)
        processes = LocalProcesses()
        jvm.stdin.write(b"\n")
        jvm.stdin.flush()
        assert jvm.stdout.readline() == b"collected\n"
        (counted,) = [each.gc for each in processes() if each.name == process_name(jvm.pid)]
        jvm.kill()
    assert counted is not None
    assert counted.pauses >= 2
    assert counted.time_s > 0
