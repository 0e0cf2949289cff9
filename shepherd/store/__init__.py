"""The only code that touches state/, inbox/ and lease/. Read docs/durability.md, then fsio, names, state."""
