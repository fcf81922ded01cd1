"""Parse bytes into the model and encode them back. Pure functions: no waiting, no clock of their own, no state."""
