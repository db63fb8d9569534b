"""OpenTelemetry: its set-up, the trace of work, and the names of spans, attributes and metrics."""
