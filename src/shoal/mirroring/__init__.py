"""Plan, copy, resume, commit: the mirror without Spark."""
