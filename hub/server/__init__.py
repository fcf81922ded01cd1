"""The HTTP/1.1 server: sockets, parser, one request after the other. It knows nothing of A2A."""
