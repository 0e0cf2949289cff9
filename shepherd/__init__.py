"""Shepherd gathers the web in cycles. Read docs/cycle.md first."""

__version__ = "0.1.0"
