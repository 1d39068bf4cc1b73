"""Journeys through the package, each a script to read and to copy from."""
