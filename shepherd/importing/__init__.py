"""WARC files taken over as harvests, worked on by the workers of a reapd."""
