"""The tokenizer in Python, for records and as the reference, and in the graph, for serving."""
