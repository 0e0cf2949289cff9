"""The programs of the cycle, one module each."""
