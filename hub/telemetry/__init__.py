"""The hub's metrics."""
