"""The revisions of authorization's tables, each named by its number."""
