"""Select: which rows are worth gathering, which sleep, which are forgotten."""
