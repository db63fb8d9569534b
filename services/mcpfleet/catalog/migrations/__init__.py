"""The revisions of the catalog's tables, each named by its number."""
