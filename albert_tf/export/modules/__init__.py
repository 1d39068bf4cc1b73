"""The exported modules, one file for each kind."""
