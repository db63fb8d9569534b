"""The catalog's snapshots, as this edge knows them."""
