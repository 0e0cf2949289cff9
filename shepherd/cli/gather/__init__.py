"""gather: the first run in one command, of some sites or of the toy web."""
