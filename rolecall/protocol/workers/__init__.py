"""Encode the calls to workers, and parse their answers into events."""
