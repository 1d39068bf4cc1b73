"""Reports on runs: scores with their spread, a model card, comparisons."""
