"""Between dispatcher and reaper: messages, keys and TLS, and the settings that travel (docs/protocol.md)."""
