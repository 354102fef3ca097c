"""The command: ``python -m bench``, in the repository's root."""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.account import group_parent
from bench.archive import ARCHIVE
from bench.before_after import BEFORE_AFTER
from bench.copy_path import COPY_PATH
from bench.cost import COSTS
from bench.cutover import CUTOVER
from bench.far import FAR
from bench.figures import table
from bench.gaps import GAPS
from bench.handlers import HANDLERS
from bench.lag import LAG
from bench.many import MANY
from bench.movers import MOVER_NAMES, movers
from bench.page import write_page
from bench.report import machine, say, versions
from bench.rows import Clusters, Row, Settings
from bench.runs import RUNS, Run, Section, write_run
from bench.several_batches import AGENT
from bench.shoal_movers import Code, code_before, has_native
from bench.start import START
from bench.verify_records import VERIFY_RECORDS
from bench.verify_speed import VERIFY
from rig import KAFKA_VERSION

__all__ = ["ROWS", "main"]

ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        *COSTS,
        COPY_PATH,
        GAPS,
        BEFORE_AFTER,
        HANDLERS,
        LAG,
        START,
        MANY,
        VERIFY,
        VERIFY_RECORDS,
        FAR,
        AGENT,
        CUTOVER,
        ARCHIVE,
    )
}

_ROOT = Path(__file__).parents[1]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure shoal and its peers between two real Kafka clusters on this machine. A run is "
        "written into bench/runs, and docs/performance.md is made from all runs. A trial (--scale) and a "
        "comparison (--before) are printed alone.",
        epilog=_rows_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rows", nargs="+", choices=list(ROWS), metavar="ROW", help="the rows (default: all)"
    )
    parser.add_argument(
        "--movers", nargs="+", choices=MOVER_NAMES, metavar="MOVER",
        help=f"the movers of the costs: {', '.join(MOVER_NAMES)} (default: all)",
    )  # fmt: skip
    parser.add_argument("--repeat", type=int, default=3, help="turns of each (default: 3)")
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="FACTOR",
        help="factor of sizes and durations; with less than 1 it is only a trial (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--before", metavar="COMMIT", help="compare with shoal of another commit instead of the peers"
    )
    parser.add_argument(
        "--before-python",
        default=sys.executable,
        metavar="PROGRAM",
        help="that commit's Python, if its dependencies differ (default: this one)",
    )
    return parser.parse_args(arguments)


def _rows_help() -> str:
    lines = [f"  {row.name:12} {row.minutes:3g} min  {row.about}" for row in ROWS.values()]
    total = sum(row.minutes for row in ROWS.values())
    times = "The times are for three turns on two quiet cores; all rows take about"
    return "\n".join(["rows:", *lines, "", f"{times} {total:g} minutes."])


@contextlib.contextmanager
def _other(commit: str | None, python: str) -> Iterator[Code | None]:
    """Check out another commit, without touching this one's files."""
    if commit is None:
        yield None
        return
    git = ["git", "-C", str(_ROOT), "worktree"]
    with tempfile.TemporaryDirectory(prefix="bench-before-") as directory:
        tree = Path(directory) / "shoal"
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield code_before(tree, python)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _measure(rows: Sequence[Row], settings: Settings) -> Mapping[str, Section]:
    """Measure the rows, and print each as soon as it is there; one that fails is left out."""
    sections = {}
    for row in rows:
        say(f"row {row.name}, about {row.minutes:g} minutes")
        try:
            sections[row.name] = section = row.run(settings)
        except Exception:  # the other rows are worth having
            traceback.print_exc()
            continue
        print(f"\n## {section.title}\n\n{section.text}\n\n{table(section.figures)}", flush=True)
    return sections


def _conditions(repeat: int, loads: tuple[float, float]) -> str:
    paths = "shoal by its native path and in pure Python" if has_native() else "shoal in pure Python alone"
    return (
        f"{machine()}; two Kafka {KAFKA_VERSION} brokers (KRaft) and the mover on this machine, loopback; "
        f"{versions('confluent-kafka', 'pyspark')}; {paths}; turns: {repeat}. Load of the machine over a "
        f"minute, before and after: {loads[0]:.1f} and {loads[1]:.1f}."
    )


def _commit() -> str:
    asked = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parse(arguments)
    if group_parent() is None:
        say("this process may not create a control group (cgroup v2), by which the bench counts CPU")
        return 2
    rows = [
        ROWS[name] for name in parsed.rows or ROWS if parsed.before is None or ROWS[name].compares_commits
    ]
    load_before = os.getloadavg()[0]
    with _other(parsed.before, parsed.before_python) as before, Clusters() as clusters:
        found = movers(before)
        chosen = {
            name: mover for name, mover in found.items() if parsed.movers is None or name in parsed.movers
        }
        if not has_native():
            say("shoal's native module cannot be imported (make native): its rows are missing")
        sections = _measure(rows, Settings(clusters, chosen, parsed.repeat, parsed.scale, before))
    conditions = _conditions(parsed.repeat, (load_before, os.getloadavg()[0]))
    print(f"\n{conditions}")
    if parsed.scale == 1 and parsed.before is None and sections:
        run = Run(f"{datetime.now(UTC):%Y-%m-%d}", _commit(), conditions, sections)
        say(f"written: {write_run(run, RUNS)}")
        write_page(ROWS)
    failed = [row.name for row in rows if row.name not in sections]
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
