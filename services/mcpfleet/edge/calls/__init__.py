"""Calls that workers answer: ordered, waited for, ended, and told to the client."""
