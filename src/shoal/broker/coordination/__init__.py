"""What the embedded broker knows besides logs: groups, transactions, leaders, sessions, waiting requests."""
