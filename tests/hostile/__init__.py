"""Tests with hostile callers, workers and receivers. listed.py maps the list of inputs to the tests."""
