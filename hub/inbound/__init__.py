"""Everything callers and workers can request: middleware, A2A, the hub's own API. The only room that imports Quart."""
