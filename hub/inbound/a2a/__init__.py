"""A2A's own calls: JSON-RPC and REST, streams and agent cards."""
