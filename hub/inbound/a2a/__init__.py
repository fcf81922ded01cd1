"""A2A's own calls: JSON-RPC and REST, and streams."""
