"""The HTTP/1.1 server: sockets, parser, one request after another. It knows nothing about A2A."""
