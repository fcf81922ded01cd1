"""Two workspaces on one hub: one does its worst, and the other must not notice."""
