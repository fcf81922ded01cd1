"""The hub's settings: one model, and where values come from."""
