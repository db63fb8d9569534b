"""The calls that a worker holds: taken, queued, cancelled, and told to their edges."""
