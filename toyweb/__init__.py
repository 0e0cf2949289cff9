"""A deterministic little web on loopback, for the demo, the tests and the benchmarks."""
