"""A fleet in a test: real processes on this machine, and the means to hurt them."""
