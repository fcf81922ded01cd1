"""Python processes without what only Unix has, in which our own code believes to be on Windows. See `stand_in`."""
