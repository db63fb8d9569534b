"""Who may do what: callers admitted, their permission's end, their limits, and one audit line for each call."""
