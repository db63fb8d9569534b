"""Messages between processes: one connection that heals, requests that tell how they ended, actors and hints."""
