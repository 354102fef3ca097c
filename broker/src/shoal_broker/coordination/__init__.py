"""The broker's state beside logs: groups, transactions, leaders, fetch sessions, waiting requests."""
