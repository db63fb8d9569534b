"""Hypercorn's server and connections, subclassed where they cost most or bound too little."""
