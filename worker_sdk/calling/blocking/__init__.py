"""The client for programs without an event loop: the same calls, run on a loop in a thread of its own."""
