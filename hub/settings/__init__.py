"""The hub's settings: the model, and the sources of values."""
