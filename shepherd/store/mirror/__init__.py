"""A database whose states came over the network, each file checked before it counts."""
