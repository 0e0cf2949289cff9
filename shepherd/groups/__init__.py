"""Host groups: who may be asked now."""
