"""People who talk to agents in a terminal: conversations, and what waits for a person."""
