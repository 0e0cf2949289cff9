"""The dispatcher of a reap: hands out what the groups allow, believes answers as far as it can check them, writes the harvest."""
