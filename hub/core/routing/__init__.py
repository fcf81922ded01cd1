"""Chooses the worker of a call, and records why."""
