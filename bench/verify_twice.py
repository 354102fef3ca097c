"""Run ``shoal verify`` several times in one process, and print the cost of the last.

Usage: python bench/verify_twice.py [--code N] ARGUMENTS..., each the arguments of one run, as a JSON array.
Each run must end with this exit code, by default 0. The memory is what the first run adds to the process.

This module imports nothing of the bench, so that it also runs with another commit's shoal.
"""

import argparse
import io
import json
import resource
import time
from contextlib import redirect_stdout
from pathlib import Path

from shoal.cli import main as shoal


def _cpu_s() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _peak_mb() -> float:
    # Not ru_maxrss: it begins with the memory of the process that started this one.
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in each)
    return int(line.split()[1]) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--code", type=int, default=0)
    parser.add_argument("runs", nargs="+", type=json.loads)
    told = parser.parse_args()
    cpu_s = seconds = memory_mb = 0.0
    for arguments in told.runs:
        cpu_before, began, peak_mb = _cpu_s(), time.monotonic(), _peak_mb()
        with redirect_stdout(io.StringIO()) as output:
            code = shoal(arguments)
        if code != told.code:
            raise SystemExit(f"exit code {code}:\n{output.getvalue()}")
        cpu_s, seconds = _cpu_s() - cpu_before, time.monotonic() - began
        memory_mb = memory_mb or _peak_mb() - peak_mb
    print(json.dumps({"CPU-s": cpu_s, "s": seconds, "more memory, MB": memory_mb}))


if __name__ == "__main__":
    main()
