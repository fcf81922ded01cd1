"""Rolecall's hub. Start reading at `hub/core/hub.py`: the story of a request."""
