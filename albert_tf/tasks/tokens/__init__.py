"""Token classification: labels for spans of a text, such as names, or for each of its words."""
