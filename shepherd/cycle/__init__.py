"""The phases of a cycle, a room each. rules.py decides over arrays; drive.py reads and writes the state (docs/cycle.md)."""
