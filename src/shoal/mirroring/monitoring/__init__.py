"""Metrics, Prometheus' text, the page, and what the mirror's processes take."""
