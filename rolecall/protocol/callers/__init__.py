"""Parse the calls of callers into commands, and encode the answers."""
