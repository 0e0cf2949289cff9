"""Equiv: rows follow a changed cf/url-equiv; and proposals for it, by sites that look alike."""
