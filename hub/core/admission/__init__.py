"""Decides whether a message is a new call, chooses its worker, and stores it."""
