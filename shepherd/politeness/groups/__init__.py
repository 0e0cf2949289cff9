"""Host groups: who may be asked now. Read engine.py first."""
