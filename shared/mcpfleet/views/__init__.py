"""The part of a snapshot that a principal may see: pure functions."""
