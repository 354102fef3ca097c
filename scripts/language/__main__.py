"""
Print each sentence that breaks a rule of plain language, and end with exit code 1 if there is one.

Usage: ``python -m scripts.language [--all] [FILE ...]``. Without arguments it reads the changed files: those
of commits that the main branch does not have, and those that are not committed.
"""

import subprocess
import sys
from pathlib import Path

from .rules import findings

#: The branches that a change may start from, the best first.
_BASES = ("origin/HEAD", "origin/main", "main")


def main(arguments: list[str]) -> int:
    """Check the chosen files, and return the exit code."""
    names = git("ls-files") if arguments == ["--all"] else arguments or _changed()
    files = [file for name in names if (file := Path(name)).suffix in (".md", ".py") and file.exists()]
    found = [finding for file in files for finding in findings(file)]
    print(*found, f"Language: {len(files)} files read, {len(found)} findings", sep="\n")
    return 1 if found else 0


def _changed() -> list[str]:
    return [*git("diff", "--name-only", base()), *git("ls-files", "--others", "--exclude-standard")]


def base() -> str:
    """Return the commit that the branch started from."""
    return next(filter(None, (git("merge-base", "HEAD", each) for each in _BASES)), ["HEAD"])[0]


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints; none if it fails, as for a branch that does not exist."""
    run = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    return run.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
