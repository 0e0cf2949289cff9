"""Cleanup: bytes that no row needs leave the bucket file."""
