"""Callers: their admission, revocations and rate limits, and the metadata that tells clients how to get a token."""
