"""What callers send, read into commands, and what they get back."""
