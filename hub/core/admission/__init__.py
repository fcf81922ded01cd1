"""Decides whether a call is new."""
