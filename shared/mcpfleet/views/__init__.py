"""What a principal may see of a snapshot: pure functions."""
