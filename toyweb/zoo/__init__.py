"""The zoo: hostile servers, each with what a good gatherer makes of it. Read exhibit.py, then table.py."""
