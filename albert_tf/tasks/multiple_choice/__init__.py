"""Multiple choice: the option that answers a question."""
