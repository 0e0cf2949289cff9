"""Rebuild: a damaged state made again from its buckets and from older states; the rebuilding part of shep-recover."""
