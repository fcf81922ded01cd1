"""The database file and the connections to it: one writes, others read. They know no table."""
