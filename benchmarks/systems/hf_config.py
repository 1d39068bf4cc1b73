"""Keys of `transformers.AlbertConfig` for the model of a workload."""

from benchmarks.workloads import Workload


def hf_config(workload: Workload) -> dict[str, object]:
    """Return the keyword arguments of the configuration, without dropout."""
    config = workload.model
    return {
        "vocab_size": config.vocab_size,
        "embedding_size": config.embedding_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_positions,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout_prob": 0.0,
    }
