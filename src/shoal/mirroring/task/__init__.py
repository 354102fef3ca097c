"""What runs in an executor: one task copies partitions, commits, and reports."""
