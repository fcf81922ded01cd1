"""Bytes to words and back. Pure functions: nothing here waits, reads a clock of its own, or remembers."""
