"""Parameter counts printed in the paper (arXiv 1909.11942), in millions.

The paper does not define which parameters it counts.
"""

# Tables 1 and 2. BERT-xlarge is only in the first version of the paper.
MODELS_M = {
    "bert-base": 108,
    "bert-large": 334,
    "bert-xlarge": 1270,
    "albert-base": 12,
    "albert-large": 18,
    "albert-xlarge": 60,
    "albert-xxlarge": 235,
}
# Tables 3 and 4, the base model: (sharing, embedding size).
SHARING_M = {
    ("all", 64): 10,
    ("all", 128): 12,
    ("all", 256): 16,
    ("all", 768): 31,
    ("attention", 128): 64,
    ("attention", 768): 83,
    ("ffn", 128): 38,
    ("ffn", 768): 57,
    ("none", 64): 87,
    ("none", 128): 89,
    ("none", 256): 93,
    ("none", 768): 108,
}
WIDTHS_M = {1024: 18, 2048: 60, 4096: 225, 6144: 499}  # Table 12: hidden size, with three layers
