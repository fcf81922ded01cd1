"""Whether a call is new, and whether there is room for it."""
