"""The phases of a cycle, a room each. rules.py decides, over arrays; drive.py brings it over the store (docs/cycle.md)."""
