"""The steps of a request and the decisions in them. No web framework, no HTTP client, no database."""
