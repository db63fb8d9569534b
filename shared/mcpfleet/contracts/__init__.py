"""The contracts: for each service, the messages that it accepts, and its typed client."""
