"""SQL engines, the database's clock and migrations; the tables of a service are in its own package."""
