"""The catalog's snapshots, as the edge caches them."""
