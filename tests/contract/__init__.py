"""One suite per port, run on every engine."""
