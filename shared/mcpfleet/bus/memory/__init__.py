"""The in-memory bus: a switch that follows the rules of NATS, for tests."""
