"""Bytes to arrays and back, as docs/formats.md says. No paths, no clock, no operating system."""
