"""HTTP/2: frames are charged and checked before h2 takes them, and streams have bounds."""
