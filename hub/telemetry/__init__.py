"""The hub's metrics, and the file of its audit log."""
