"""Connections to the embedded broker: accepted, bounded, read, and handed to the APIs."""
