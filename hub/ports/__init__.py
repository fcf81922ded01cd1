"""Every seam of the hub, one file each. The docstrings are the contracts: who owns what, in which order, which errors.

Everything runs on one event loop's thread unless a line says otherwise. Durations cross a port, instants never: an engine's
own clock decides what has expired. `Caller` comes first wherever somebody's data is read: what belongs to another workspace
or caller is not found, exactly like what does not exist.
"""
