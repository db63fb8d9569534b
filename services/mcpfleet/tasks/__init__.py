"""The tasks service: durable tasks, their inputs and steps, and idempotency records."""
