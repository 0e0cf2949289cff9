"""Feedback: weights and flags that indexers uploaded become columns."""
