"""Decisions: the story of a request. No web, no HTTP client, no database."""
