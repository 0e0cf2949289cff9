"""The scheduler: the cycle as a table, one cycle as a run of programs, and the daemon that repeats it."""
