"""Outbound: the only room with an HTTP client. Whatever goes wrong out there becomes one of rolecall.errors here."""
