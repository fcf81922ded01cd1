"""Tests of what only one engine has."""
