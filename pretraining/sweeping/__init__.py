"""The members of a sweep and their results."""
