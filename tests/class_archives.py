"""The class data archive that all tests share if they start Spark's JVM.

A start without one takes 4 s and 7 CPU-seconds longer (`shoal.spark.launch.archive`), and each test has a
separate state directory.
"""

from pathlib import Path

__all__ = ["share_class_archives"]

_ARCHIVES = Path(__file__).parents[1] / ".kafka" / "class-archives"
"""Beside the other files that tests create once, until `make distclean` deletes them."""


def share_class_archives(state_home: Path) -> None:
    """Let a mirror with this ``XDG_STATE_HOME`` use the shared archive, or create it."""
    own = state_home / "shoal" / "class-archives"
    if not own.exists():
        _ARCHIVES.mkdir(parents=True, exist_ok=True)
        own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        own.symlink_to(_ARCHIVES, target_is_directory=True)
