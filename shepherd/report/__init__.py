"""What a database says of itself, as plain data: of one URL, of sites and servers, of what runs and of what past cycles did.

Nothing here prints: the programs show it on a terminal, the server sends it as JSON. Clocks come in as arguments.
"""
