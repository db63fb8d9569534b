"""SQL engines, the database's clock and migrations; a service's tables are in its own package."""
