"""Files by reference over HTTP: their addresses, and bodies that are streamed in both directions."""
