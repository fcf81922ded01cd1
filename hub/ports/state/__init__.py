"""The ports of what is kept: tasks, their events, files and usage, leases, push configs."""
