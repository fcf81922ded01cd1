"""The ports of the hub, by what they are about. The docstrings are the contracts: ownership, order, errors.

Everything runs on the thread of one event loop unless a docstring states otherwise. Durations cross a port, instants never:
the engine's own clock decides what has expired. `Caller` is the first argument wherever a caller's data is read: data of
another workspace or caller is not found, exactly like data that does not exist.
"""
