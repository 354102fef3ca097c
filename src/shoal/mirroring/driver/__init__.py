"""What runs once for each mirror: lock, discovery, schedule, retries, dry run."""
