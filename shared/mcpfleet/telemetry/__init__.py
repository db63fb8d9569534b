"""OpenTelemetry set-up, the trace that work belongs to, and the names of spans, attributes and metrics."""
