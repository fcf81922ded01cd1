"""Commands that show what happens at the hub while it happens."""
