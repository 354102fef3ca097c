"""
Random topics, copied and damaged, and the findings that verify must report of them.

A trial fills a source log with every batch kind (:mod:`.source`) and copies it as one of several tools does
(:mod:`.copiers`). Then it puts up to five faults into the copy (:mod:`.faults`). The cleaner and retention
delete records on either side (:mod:`.cleaner`), and verify compares both (:mod:`.trial`). A brute
force over both lists of records decides without verify which faults can be seen (:mod:`.truth`).

Large logs, two topics and changes while verify reads have cases of their own (:mod:`.cases`).

`python -m tests.verify.campaign FIRST COUNT` runs many trials, and with `--cases` as many of each case. With
`--clusters` the trials are between real clusters, by other tools and the real cleaner (:mod:`.clusters`).
"""

from .cases import CASES, LARGE_CASES
from .copiers import Copier
from .trial import Trial, run_trials

__all__ = ["CASES", "LARGE_CASES", "Copier", "Trial", "run_trials"]
