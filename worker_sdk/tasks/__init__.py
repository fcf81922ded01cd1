"""The tasks of one worker: executions of their handlers, their logs, and the table of tasks."""
