"""Token classification: CoNLL columns and JSON lines."""
