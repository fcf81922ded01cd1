"""How many files of ours one call passes, and how often it comes back to one: what `scripts/walk` counts."""
