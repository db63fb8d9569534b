"""Subscriptions: how many listen streams each partition has over the whole fleet, and what every session is."""
