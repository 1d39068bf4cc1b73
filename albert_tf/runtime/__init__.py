"""Commands, settings, run folders, outputs, devices, errors, plots and keyed randomness."""
