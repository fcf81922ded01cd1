"""Outbound: the only room with an HTTP client. Every failure becomes one of rolecall.errors here."""
