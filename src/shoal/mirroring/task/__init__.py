"""The code of an executor: one task copies partitions, commits, and reports."""
