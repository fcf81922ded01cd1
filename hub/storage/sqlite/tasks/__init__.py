"""The tasks of the SQLite engine: their rows, lists, changes and deletion, and the names of their calls."""
