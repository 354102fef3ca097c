"""The HTTP server for metrics, page and commands, with bounds on everything that a client can hold."""

from .door import Answer, CommandAnswer, Door, OnCommand, Route

__all__ = ["Answer", "CommandAnswer", "Door", "OnCommand", "Route"]
