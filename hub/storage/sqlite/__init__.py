"""State in one SQLite file that one process owns."""
