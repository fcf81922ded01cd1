"""What is particular to one engine."""
