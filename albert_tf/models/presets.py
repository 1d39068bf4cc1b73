"""The published models: their configurations, and the parameter counts that the paper prints."""

from typing import Any

# Parameters in millions (arXiv 1909.11942). The paper does not define which ones it counts.
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


def _presets() -> dict[str, dict[str, Any]]:
    # Table 1: layers, hidden size, feed-forward size, heads. The heads of xlarge are 128 wide (the
    # released checkpoints have 16 heads), all others 64.
    shapes = {
        "base": (12, 768, 3072, 12),
        "large": (24, 1024, 4096, 16),
        "xlarge": (24, 2048, 8192, 16),
        "xxlarge": (12, 4096, 16384, 64),
    }
    # Google's Chinese models: BERT's Chinese WordPiece vocabulary and ReLU, then the settings in
    # which some of them differ.
    chinese = {"vocab_size": 21128, "activation": "relu"}
    chinese_own = {
        "xlarge": {"initializer_range": 0.014},
        "xxlarge": {"initializer_range": 0.01, "num_heads": 16},
    }
    keys = ("num_layers", "hidden_size", "intermediate_size", "num_heads")
    presets: dict[str, dict[str, Any]] = {
        "albert-tiny": dict(zip(keys, (4, 128, 512, 4), strict=True)) | {"embedding_size": 64}
    }
    for name, shape in shapes.items():
        values = dict(zip(keys, shape, strict=True))
        dropout = 0.0 if name == "xxlarge" else 0.1  # only xxlarge v1 has none
        presets[f"albert-{name}-v1"] = values | _dropout(dropout)
        presets[f"albert-{name}-v2"] = values | _dropout(0.0)
        presets[f"albert-{name}-zh"] = values | chinese | chinese_own.get(name, {}) | _dropout(0.0)
        if name != "xxlarge":
            bert = {"sharing": "none", "embedding_size": values["hidden_size"]}
            presets[f"bert-{name}"] = values | bert | _dropout(0.1)
    return presets


def _dropout(rate: float) -> dict[str, float]:
    return {"hidden_dropout": rate, "attention_dropout": rate}


PRESETS = _presets()
