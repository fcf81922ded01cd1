"""What the hub says of itself: log lines and metrics."""
