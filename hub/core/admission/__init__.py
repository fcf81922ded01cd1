"""Decides whether a call is new, and whether the hub has capacity for it."""
