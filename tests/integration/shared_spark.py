"""``shoal`` commands that run one after the other in one process, and so in one JVM.

A mirror spends most of its start on Spark's JVM. The JVM of a stopped session stays with its process, and the
next mirror in this process begins at once. Each command has its own arguments, environment, output and exit
code. A test of signals, of processes or of Spark's settings needs a separate process (`rig.shoal`).
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from rig.shoal import run_shoal, state_in
from shoal.cli import main

__all__ = ["shoal"]

#: A stopped session leaves its settings in the JVM; a dry run starts none.
_NOT_SHARED = {"--conf", "--master", "--dry-run"}


def shoal(*args: str, state: Path, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
    """Run ``shoal`` to its end.

    If a mirror has no settings of Spark, it shares a process and its JVM with others.
    """
    if args[0] == "mirror" and not _NOT_SHARED & set(args):
        return _SHARED.run(*args, environment={**os.environ, **state_in(state)}, timeout_s=timeout_s)
    return run_shoal(*args, state=state, timeout_s=timeout_s)


class _SharedSpark:
    """The process, started with the first command; it ends with this one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, *args: str, environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run ``shoal`` with these arguments to its end.

        Raises:
            RuntimeError: The process died, or timed out and was killed; the next command starts another.
        """
        if self._process is None:
            atexit.register(self.close)
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        commands, answers = self._process.stdin, self._process.stdout
        assert commands is not None
        assert answers is not None
        timer = threading.Timer(timeout_s, self._process.kill)
        timer.start()
        try:
            commands.write(json.dumps({"args": args, "environment": dict(environment)}) + "\n")
            commands.flush()
            answer = answers.readline()
        finally:
            timer.cancel()
        if not answer:
            self.close()
            raise RuntimeError(f"no answer to `shoal {' '.join(args)}` within {timeout_s} s")
        return subprocess.CompletedProcess(["shoal", *args], **json.loads(answer))

    def close(self) -> None:
        """End the process, and with it the JVM."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


_SHARED = _SharedSpark()


def _serve() -> None:
    """Run a command for each line of standard input, and write a line about its end."""
    with os.fdopen(os.dup(0)) as commands, os.fdopen(os.dup(1), "w") as answers:
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)  # commands must not read each other's lines
        for line in commands:
            answers.write(json.dumps(_run(**json.loads(line))) + "\n")
            answers.flush()


def _run(args: list[str], environment: dict[str, str]) -> dict[str, int | str]:
    os.environ.clear()
    os.environ.update(environment)
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        # The descriptors and not `sys.stdout` alone: Spark's processes must not write to them either.
        os.dup2(stdout.fileno(), 1)
        os.dup2(stderr.fileno(), 2)
        try:
            code = main(args)
        except SystemExit as end:  # argparse
            code = end.code if isinstance(end.code, int) else 1
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for file in (stdout, stderr):
            file.seek(0)
        return {"returncode": code, "stdout": stdout.read(), "stderr": stderr.read()}


if __name__ == "__main__":
    _serve()
