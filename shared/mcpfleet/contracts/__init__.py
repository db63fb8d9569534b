"""One module a service: the messages that it accepts, and its typed client."""
