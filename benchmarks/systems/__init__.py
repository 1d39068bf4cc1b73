"""The systems to compare: ours and its peers, any of which may be missing.

The module of a system imports its library at the top and has builders
`(Workload, precision, jit) -> Step`. Every builder makes the same training step with the library's
own modules and optimizer: forward without dropout, MLM logits at the predicted positions only, mean
MLM loss + mean pair loss, gradients clipped to global norm 1, AdamW.
"""

from collections.abc import Callable

from benchmarks.workloads import Workload

Step = Callable[[], float]  # runs one training step and returns its loss
Builder = Callable[[Workload, str, bool], Step]

LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM = 1e-4, 0.01, 1.0
SYSTEMS = {
    "ours": ("ours", "albert"),
    "ours-bert": ("ours", "bert"),
    "tf-models-official": ("tf_models_official", "albert"),
    "hf-tf": ("hf_tf", "albert"),
    "hf-torch": ("hf_torch", "eager"),
    "hf-torch-compiled": ("hf_torch", "compiled"),
    "keras-hub": ("keras_hub", "albert"),
}
