"""Rolecall's hub. Start reading at `hub/core/hub.py`: the story of a request."""

__version__ = "0.1.0"
