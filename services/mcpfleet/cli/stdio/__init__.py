"""`mcpfleet stdio`: a client that starts its servers speaks with an endpoint through two pipes."""
