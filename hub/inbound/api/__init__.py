"""The hub's own API on Quart: registry, tasks, push deliveries, operations, OpenAPI."""
