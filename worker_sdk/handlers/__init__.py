"""Handlers: which of them a message is for, what they take from it, and the models that they may be written with."""
