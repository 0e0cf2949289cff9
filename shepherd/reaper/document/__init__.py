"""What the bytes of an answer say: type, charset, links, wishes; robots files and sitemaps."""
