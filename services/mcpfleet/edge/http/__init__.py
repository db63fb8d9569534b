"""The edge's HTTP: sockets and connections, who may come in by Host and Origin, and the client at the other end."""
