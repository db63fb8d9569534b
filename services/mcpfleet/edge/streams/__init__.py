"""Listen streams: they receive the changes that their callers may see, from their opening to their end."""
