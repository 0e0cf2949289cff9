"""Drives the phases over the store: partitions, part files, publish."""
