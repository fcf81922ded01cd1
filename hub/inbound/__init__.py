"""Inbound. The only room that knows Quart."""
