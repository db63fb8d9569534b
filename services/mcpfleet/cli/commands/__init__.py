"""The commands of `mcpfleet`, declared: what each takes. Every function imports what it runs, when it runs."""
