"""What a run leaves for people: scores with their spread, a model card, comparisons."""
