"""The revisions of the tasks service's tables."""
