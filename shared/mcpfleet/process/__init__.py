"""What every process needs: settings, logs, signals, drain, readiness and the admin port."""
