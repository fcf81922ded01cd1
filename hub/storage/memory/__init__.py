"""State in memory, lost at exit: the reference implementation of the engine contract."""
