"""Merge: contributed and inserted URLs become rows, and requests of operators are carried out."""
