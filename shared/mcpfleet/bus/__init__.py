"""Messages between processes: one connection that heals, requests that say how they ended, actors, hints."""
