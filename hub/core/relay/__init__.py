"""One relay per running task: it copies the worker's stream into the log, and is the only writer of that log."""
