"""Authentication: tokens. Also the vault, which seals secrets."""
