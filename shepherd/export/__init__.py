"""A state for other programs: its documents as WARC, JSON lines, Parquet, files (docs/export.md).

documents.py gives them one after the other, wherever they come from; a sink makes bytes of each; output.py puts the bytes into
files that have their names only when all is whole.
"""
