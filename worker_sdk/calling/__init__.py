"""Calls roles through a hub: the client, its HTTP, replies and streams."""
