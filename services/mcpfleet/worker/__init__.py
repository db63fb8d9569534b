"""The worker: a process that hosts an application's tools, and runs their handlers."""
