"""The types of the domain, without I/O. Imports nothing but the standard library and msgspec."""
