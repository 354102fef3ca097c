"""The rig fills a disk and empties it; otherwise a trial with a full disk would test nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rig import disk


def test_full_disk_refuses_writes_until_room_is_made(tmp_path: Path) -> None:
    if disk.mounts_are_refused():
        with pytest.raises(disk.MountRefused):
            disk.mount(tmp_path, 1)
        return
    disk.mount(tmp_path, 1)
    try:
        disk.fill(tmp_path)
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "more").write_bytes(b"x")
        disk.make_room(tmp_path)
        (tmp_path / "more").write_bytes(b"x" * 100_000)
    finally:
        disk.unmount(tmp_path)
    assert list(tmp_path.iterdir()) == []
