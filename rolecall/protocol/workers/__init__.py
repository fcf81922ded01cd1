"""What workers are sent, and what they answer, read into events."""
