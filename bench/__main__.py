"""The command: ``python -m bench``, in the repository's root."""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import aims
from bench.account import group_parent
from bench.compare import COMPARISONS
from bench.far import FAR
from bench.figures import Figures
from bench.growth import ALIGNING, GROWTH, SIZE
from bench.lag import LAG
from bench.movers import MOVER_NAMES, movers
from bench.report import machine, say, versions
from bench.rows import Clusters, Row, Section, Settings
from bench.several_batches import AGENT
from bench.shoal_movers import Code, code_before, has_native
from bench.start import START
from bench.steady import STEADY
from bench.verify_speed import VERIFY
from rig import KAFKA_VERSION

ROWS = {
    row.name: row for row in (*COMPARISONS, *STEADY, VERIFY, GROWTH, ALIGNING, SIZE, LAG, START, FAR, AGENT)
}

_ROOT = Path(__file__).parents[1]
_RESULTS = Path(__file__).parent / "results.md"

#: Of one that has no build for everyone to run; the conditions are its own.
_PUBLISHED = (
    "Redpanda Migrator was not run: Go's module proxy gave no build of it. Redpanda publishes 1.0 GB/s on "
    "3 CPUs (so at most 3 CPU-s/GB) for uncompressed records of 1 KB in 40 partitions, with write caching."
)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure shoal and its peers between two real Kafka clusters on this machine.",
        epilog=_rows_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rows", nargs="+", choices=list(ROWS), metavar="ROW", help="the rows (default: all)"
    )
    parser.add_argument(
        "--movers", nargs="+", choices=MOVER_NAMES, metavar="MOVER",
        help=f"the movers of the first four rows: {', '.join(MOVER_NAMES)} (default: all)",
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
    parser.add_argument("--append", action="store_true", help=f"append the result to bench/{_RESULTS.name}")
    return parser.parse_args(arguments)


def _rows_help() -> str:
    lines = [f"  {row.name:10} {row.minutes:3g} min  {row.about}" for row in ROWS.values()]
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


def _measure(rows: Sequence[Row], settings: Settings) -> tuple[list[Section], list[str]]:
    """Measure the rows; print each as soon as it is there. Return also the names of those that failed."""
    sections, failed = [], []
    for row in rows:
        say(f"row {row.name}, about {row.minutes:g} minutes")
        try:
            section = row.run(settings)
        except Exception:  # the other rows are worth having
            traceback.print_exc()
            failed.append(row.name)
            continue
        sections.append(section)
        print(f"\n### {section.title}\n\n{section.text}", flush=True)
    return sections, failed


def _heading(settings: Settings, loads: tuple[float, float]) -> str:
    counted = "by a control group" if group_parent() else "by samples, which may miss some"
    paths = "shoal by its native path and in pure Python" if has_native() else "shoal in pure Python alone"
    beside = " A shoal of another commit, *before*, runs beside this one." if settings.before else ""
    trial = "" if settings.scale == 1 else f" **A trial at {settings.scale:g} of the size: no figures.**"
    return f"""\
{machine()}; two Kafka {KAFKA_VERSION} brokers (KRaft) and the mover on this machine, loopback; \
{versions("confluent-kafka", "pyspark")}; {paths}.{beside}{trial}
Movers in turn, {settings.repeat} turns: the median, and the extremes in parentheses. \
All processes of a mover are counted, {counted}, from a tenth of its records to the last, or from half of \
them in rows of the steady state; nothing is a difference of two runs.
A GB is one of uncompressed records of 1,000 bytes, a wire GB one of the batches as they are stored. \
A ratio is that of the same turn, and is quoted only if three turns repeat within 15 %. \
The yardstick is the CPU of a fixed loop beside each run: compare rows only where it is the same.
Load of the machine over a minute, before and after: {loads[0]:.1f} and {loads[1]:.1f}."""


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parse(arguments)
    rows = [
        ROWS[name] for name in parsed.rows or ROWS if parsed.before is None or ROWS[name].compares_commits
    ]
    load_before = os.getloadavg()[0]
    with _other(parsed.before, parsed.before_python) as before, Clusters() as clusters:
        found = movers(before)
        chosen = {
            name: mover for name, mover in found.items() if parsed.movers is None or name in parsed.movers
        }
        settings = Settings(clusters, chosen, parsed.repeat, parsed.scale, before)
        if not has_native():
            say("shoal's native module cannot be imported (make native): its rows are missing")
        sections, failed = _measure(rows, settings)
    figures: Figures = {key: figure for section in sections for key, figure in section.figures.items()}
    parts = [_heading(settings, (load_before, os.getloadavg()[0]))]
    if parsed.before is None:
        parts += ["### Aims", aims.table(figures), "### For the README", aims.for_readme(figures), _PUBLISHED]
    else:
        parts += ["### This commit against the other", aims.against_before(figures)]
    print("\n\n" + "\n\n".join(parts))
    if parsed.append:
        parts += [text for section in sections for text in (f"### {section.title}", section.text)]
        title = f"## {datetime.now(UTC):%Y-%m-%d}"
        with _RESULTS.open("a") as file:
            file.write("\n\n".join(["", title, *parts]) + "\n")
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
