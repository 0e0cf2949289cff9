"""shep-dump: what is in the files, as it stands there."""
