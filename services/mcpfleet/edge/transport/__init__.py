"""HTTP at the edge: requests and responses, allowed hosts, CORS, and memory for bodies."""
