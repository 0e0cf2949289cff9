"""Rank: weights by the links between documents."""
