"""How many of our files one call passes, and how often it returns to one: `scripts/walk` counts this."""
