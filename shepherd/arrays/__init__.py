"""Numpy arrays and the files behind them: what every phase computes with. Knows tables, knows no phase."""
