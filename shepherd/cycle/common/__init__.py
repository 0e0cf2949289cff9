"""What several phases share: whose turn it is, normalised sites, the table of sites while it grows."""
