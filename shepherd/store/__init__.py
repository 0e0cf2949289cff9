"""The only code that touches state/, inbox/ and lease/. Read docs/durability.md, then disk/fsio, disk/names, state/directory."""
