"""Makes tests/golden/huggingface_*.npz: what torch's AlbertForPreTraining computes.

    python tests/golden/make_huggingface.py        # with requirements-slow.txt installed

Each file holds a tiny model's configuration and weights as Hugging Face names them, one padded
batch, the outputs, the loss (mean over the masked slots plus mean over the pairs, no dropout) and
the gradient of the loss by every weight. With arguments JSON LENGTH OUTPUT it makes one file for
other configuration values, as the live comparison does: torch and TensorFlow in one process can
crash each other.
"""

import json
import pathlib
import sys

import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parent
TINY = {
    "vocab_size": 120,
    "embedding_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 14,
    "initializer_range": 0.2,
}
CASES = {
    "gelu_groups": TINY | {"num_hidden_groups": 2, "hidden_act": "gelu_new"},
    "relu": TINY | {"num_hidden_groups": 1, "hidden_act": "relu"},
}


def fake_batch(vocab_size: int, length: int) -> dict[str, np.ndarray]:
    """Three padded rows of random ids with four slots each, two of them empty; names are ours."""
    rng = np.random.default_rng(7)
    real = np.array([[length], [length - 3], [length // 2]])
    mask = (np.arange(length) < real).astype(np.int32)
    slots = np.stack([rng.choice(length // 2, 4, replace=False) for _ in range(3)])
    weights = np.ones([3, 4], np.float32)
    weights[1, 3] = weights[2, 2] = 0
    return {
        "input_word_ids": rng.integers(5, vocab_size, [3, length]).astype(np.int32) * mask,
        "input_mask": mask,
        "input_type_ids": (np.arange(length) >= real // 2).astype(np.int32) * mask,
        "masked_lm_positions": slots.astype(np.int32),
        "masked_lm_ids": rng.integers(5, vocab_size, [3, 4]).astype(np.int32),
        "masked_lm_weights": weights,
        "pair_label": np.array([0, 1, 1], np.int32),
    }


def reference(values: dict, length: int) -> dict[str, np.ndarray]:
    """What torch computes for a model with these configuration values and random weights.

    Returns:
      `config`, and `weights/*`, `inputs/*`, `outputs/*` and `gradients/*`.
    """
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.AlbertConfig(**values, classifier_dropout_prob=0.0)
    model = transformers.AlbertForPreTraining(config).eval()
    with torch.no_grad():  # biases and LayerNorms start at 0 and 1 and hide mistakes
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * config.initializer_range / 2)
        if config.embedding_size == config.hidden_size:  # ours has no projection there
            projection = model.albert.encoder.embedding_hidden_mapping_in
            projection.weight.copy_(torch.eye(config.hidden_size))
            projection.bias.zero_()
    inputs = fake_batch(config.vocab_size, length)
    batch = {name: torch.tensor(value).long() for name, value in inputs.items()}
    ids = {
        "input_ids": batch["input_word_ids"],
        "attention_mask": batch["input_mask"],
        "token_type_ids": batch["input_type_ids"],
    }
    positions = batch["masked_lm_positions"]
    targets = torch.where(batch["masked_lm_weights"] > 0, batch["masked_lm_ids"], -100)
    labels = torch.full_like(batch["input_word_ids"], -100).scatter(1, positions, targets)
    heads = model(**ids, labels=labels, sentence_order_label=batch["pair_label"])
    heads.loss.backward()
    encoded = model.albert(**ids)
    wide = positions[..., None].expand(-1, -1, config.vocab_size)
    outputs = {
        "sequence_output": encoded.last_hidden_state,
        "pooled_output": encoded.pooler_output,
        "mlm_logits": heads.prediction_logits.gather(1, wide),
        "pair_logits": heads.sop_logits,
        "loss": heads.loss,
    }
    weights = dict(model.named_parameters())
    return {
        "config": np.array(json.dumps(values)),
        **{f"inputs/{name}": value for name, value in inputs.items()},
        **{f"outputs/{name}": value.detach().numpy() for name, value in outputs.items()},
        **{f"weights/{name}": value.detach().numpy() for name, value in weights.items()},
        **{f"gradients/{name}": value.grad.numpy() for name, value in weights.items()},
    }


if __name__ == "__main__":
    if sys.argv[1:]:
        given, size, output = sys.argv[1:]
        np.savez(output, **reference(json.loads(given), int(size)))
    else:
        for name, values in CASES.items():
            np.savez_compressed(GOLDEN / f"huggingface_{name}.npz", **reference(values, length=12))
