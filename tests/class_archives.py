"""The class data archive that all tests share if they start Spark's JVM.

A start without one takes longer, and creates one in the background (`shoal.spark.launch.archive`). Each test
has a separate state directory.
"""

from pathlib import Path

__all__ = ["share_class_archives"]

_ARCHIVES = Path(__file__).parents[1] / ".kafka" / "class-archives"
"""Beside the other files that tests create once, until `make distclean` deletes them."""


def share_class_archives(state_dir: Path) -> None:
    """Let a start of Spark with this state directory use the shared archive, or create it."""
    own = state_dir / "class-archives"
    if not own.exists():
        _ARCHIVES.mkdir(parents=True, exist_ok=True)
        own.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        own.symlink_to(_ARCHIVES, target_is_directory=True)
