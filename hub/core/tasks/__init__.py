"""Finding tasks and reading their logs: as a stream, or folded as of now."""
