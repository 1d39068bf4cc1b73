"""The layers of the encoder and of its pretraining heads.

Shape legend: B batch, S sequence, E embedding, H hidden, F feed-forward, N heads, D per head, P
predictions, V vocabulary size.
"""
