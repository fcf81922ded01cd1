"""The tasks of one worker: their handlers at work, their logs, finding them again."""
