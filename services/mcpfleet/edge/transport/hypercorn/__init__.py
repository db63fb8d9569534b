"""Hypercorn's server and connections, with subclasses that cost less and bound more."""
