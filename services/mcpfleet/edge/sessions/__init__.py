"""Sessions of the clients of 2025: known to every edge, and of none."""
