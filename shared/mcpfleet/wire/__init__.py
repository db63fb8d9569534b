"""The MCP wire: envelopes, headers, versions, errors, and the bytes of replies."""
