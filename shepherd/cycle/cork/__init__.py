"""Cork: harvests become rows, sites and servers of a closed state."""
