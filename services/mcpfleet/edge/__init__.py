"""The edge: a stateless HTTP and SSE node, the only process that a client's bytes reach."""
