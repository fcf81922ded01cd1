"""How many of our files a call passes, how often it returns to one, what an open stream keeps: `scripts/walk` counts this."""
