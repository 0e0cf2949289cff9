"""shep: one module for each subcommand; main.py puts them together."""
