"""One relay per running task: it copies the worker's stream into the log, and is its only writer."""
