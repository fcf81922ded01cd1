"""Feeds: what changes, as server-sent events, until the reader leaves or its token ends."""
