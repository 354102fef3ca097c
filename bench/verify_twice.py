"""Run ``shoal verify`` several times in one process, and print the cost of the last.

Usage: python bench/verify_twice.py ARGUMENTS..., each the arguments of one run, as a JSON array.

This module imports nothing of the bench, so that it also runs with another commit's shoal.
"""

import io
import json
import resource
import sys
import time
from contextlib import redirect_stdout

from shoal.cli import main as shoal


def _cpu_s() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    cpu_s = seconds = 0.0
    for told in sys.argv[1:]:
        cpu_before, began = _cpu_s(), time.monotonic()
        with redirect_stdout(io.StringIO()) as output:
            code = shoal(json.loads(told))
        if code != 0:
            raise SystemExit(f"exit code {code}:\n{output.getvalue()}")
        cpu_s, seconds = _cpu_s() - cpu_before, time.monotonic() - began
    print(json.dumps({"cpu_s": cpu_s, "seconds": seconds}))


if __name__ == "__main__":
    main()
