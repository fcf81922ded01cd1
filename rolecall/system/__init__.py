"""What differs between Linux, macOS and Windows: signals, sockets, files and their locks. Each difference stands here once."""
