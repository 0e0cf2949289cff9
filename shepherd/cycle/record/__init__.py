"""Record: new URLs get thin buckets, deletions tombstones, and the state is closed."""
