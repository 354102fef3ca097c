"""The driver of a mirror, one process: its run, group lock, discovery, schedule, retries, dry run."""
