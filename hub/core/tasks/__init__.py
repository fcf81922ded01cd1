"""Finds tasks and reads their logs: as a stream, or folded into the current task."""
