"""Callers: their admission and its end, their limits, and the metadata that tells clients where to get a token."""
