"""Example scripts to read and to copy from."""
