"""Who is asking: tokens, and the vault that seals secrets."""
