"""`rolecall up` and `rolecall init`: the file agents.toml, and what is made of it."""
