"""What differs between systems, as far as one system can show it."""
