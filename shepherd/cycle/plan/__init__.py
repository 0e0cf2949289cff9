"""Plan: what the next reap asks for, and in which order."""
