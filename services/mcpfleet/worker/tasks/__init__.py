"""Durable tasks on a worker: taken, kept, run, asked, and ended or given back."""
