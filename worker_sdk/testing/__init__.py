"""Tests of workers without a port and without a hub."""
