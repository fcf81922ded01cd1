"""State in memory: the reference that every other engine is held against. Nothing survives."""
