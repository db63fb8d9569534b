"""Subscriptions: the number of listen streams of each partition over the fleet, and the sessions of 2025 clients."""
