"""The fleet now: what each process says of itself, and the page on the admin port that shows it."""
