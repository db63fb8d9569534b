"""The parts of every process: settings, logs, signals, drain, readiness and the admin port."""
