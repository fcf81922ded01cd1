"""Files of messages and results: their bytes, and their way to and from a hub."""
