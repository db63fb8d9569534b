"""The catalog: what exists. Manifests come in from workers, numbered snapshots go out to edges."""
