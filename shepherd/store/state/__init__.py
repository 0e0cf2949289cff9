"""The database directory and its states: columns, segments, logs, harvests, inbox, leases. Read database.py first."""
