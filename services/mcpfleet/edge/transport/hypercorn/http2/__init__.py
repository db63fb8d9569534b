"""HTTP/2: frames are priced and checked before h2 sees them, and streams have bounds."""
