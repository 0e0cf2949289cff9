"""Files: every call that changes one, every name there may be, locks, maps and injected faults."""
