"""HTTP at the edge: the client at the other end, allowed hosts, CORS, and memory for bodies."""
