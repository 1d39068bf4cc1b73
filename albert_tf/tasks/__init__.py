"""Task models: an encoder with a head, loadable from a run folder without `finetuning`."""
