"""The modules that are exported, a file for each kind."""
