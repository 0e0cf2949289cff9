"""What one reader gets of one state: documents, rows by text, differences and counts. Behind exports, the server and `shep`."""
