"""Listen streams: who is told of which change, from the opening of a stream to its one end."""
