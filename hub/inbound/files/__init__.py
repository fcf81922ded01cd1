"""Files over HTTP: their addresses, bodies that are streamed in both directions, and downloads for browsers."""
