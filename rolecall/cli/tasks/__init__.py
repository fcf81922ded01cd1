"""`rolecall tasks`: running and ended tasks, and what is left of old ones."""
