"""Damage: the walk that finds it, and the mending that needs no rebuilding (docs/recovery.md)."""
