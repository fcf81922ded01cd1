"""What extensions of A2A that are ours add to documents, and read from them."""
