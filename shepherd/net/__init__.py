"""Everything that meets the network."""
