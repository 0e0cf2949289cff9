"""Readers over HTTP: leased states as documents and as files, and feedback (docs/serve.md). Start reading in app.py."""
