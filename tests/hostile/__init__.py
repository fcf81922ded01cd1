"""What hostile callers, workers and receivers send, and what they get. Which input of the list stands where: listed.py."""
