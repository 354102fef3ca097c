"""The commands ``shoal-broker`` and ``shoal-demo``."""
