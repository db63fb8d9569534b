"""The revisions of the tables of subscriptions, each named by its number."""
