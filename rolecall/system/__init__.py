"""What differs between Linux, macOS and Windows: signals, sockets, files, owners, locks. Each difference stands here once."""
