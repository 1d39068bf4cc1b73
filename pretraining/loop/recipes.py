"""The named configurations that are no row of a table: a model each, with how it is trained."""

import dataclasses

from albert_tf.models.config import AlbertConfig
from data.objectives.masking import MaskingConfig
from data.objectives.registry import ObjectiveConfig
from pretraining.loop.config import LoopConfig, OptimizerConfig, PretrainConfig

# Seconds on any machine, for tests and a first try.
SMOKE = PretrainConfig(
    model=AlbertConfig(
        embedding_size=32,
        hidden_size=64,
        num_layers=2,
        num_heads=2,
        intermediate_size=128,
        max_positions=64,
    ),
    optimizer=OptimizerConfig(learning_rate=0.01, warmup_steps=10),
    loop=LoopConfig(steps=40, global_batch_size=16, steps_per_loop=10, checkpoint_every=20),
)

# Hours on a few cores: a block that learns faster, single words masked, and a rate that is constant
# until the last fifth, so that a run can be shortened or extended without another schedule.
MINI = PretrainConfig(
    model=AlbertConfig(
        hidden_size=384,
        num_layers=6,
        num_groups=3,
        num_heads=6,
        intermediate_size=1536,
        max_positions=128,
        norm="pre",
        positions="rotary",
        ffn="gated",
    ),
    objective=ObjectiveConfig(pair_weight=0.1),
    masking=MaskingConfig(max_ngram=1),
    optimizer=OptimizerConfig(
        name="adamw", learning_rate=0.001, warmup_steps=1000, decay_steps=7200, beta_2=0.98
    ),
    loop=LoopConfig(steps=36_000, global_batch_size=64, steps_per_loop=100, checkpoint_every=500),
)

# Minutes on a laptop: the same recipe for a smaller model, enough to see every metric change.
LAPTOP = dataclasses.replace(
    MINI,
    model=MINI.model.replace(
        embedding_size=64,
        hidden_size=128,
        num_layers=4,
        num_groups=1,
        num_heads=2,
        intermediate_size=512,
        max_positions=64,
    ),
    optimizer=dataclasses.replace(
        MINI.optimizer, learning_rate=0.002, warmup_steps=100, decay_steps=300
    ),
    loop=LoopConfig(steps=1500, global_batch_size=32, steps_per_loop=50, checkpoint_every=250),
)


# From the weights of albert-mini-en (`--init`) to your own text: its recipe at half the rate, by
# which your text gains nearly as much, and other text loses half as much.
ADAPT = dataclasses.replace(
    MINI,
    model=MINI.model.replace(max_positions=512),
    optimizer=dataclasses.replace(
        MINI.optimizer, learning_rate=0.0005, warmup_steps=30, decay_steps=120
    ),
    loop=dataclasses.replace(MINI.loop, steps=600, steps_per_loop=10, checkpoint_every=100),
)


# At most 20 pieces of a sequence of any length are predicted: the reference's
# `max_predictions_per_seq`, which the paper does not give (google-research/albert, issue 51).
PAPER_MASKING = MaskingConfig(max_predictions=20)


def paper_recipe(preset: str) -> PretrainConfig:
    """Return the paper's recipe (section 4.1) for the model `preset`.

    LAMB at 0.00176, batch 4096, 125,000 steps. 3,125 of them are warm-up and `PAPER_MASKING` masks,
    both as in google-research/albert, since the paper gives neither.
    """
    return PretrainConfig(model=AlbertConfig.from_preset(preset), masking=PAPER_MASKING)


EXPERIMENTS = {
    "smoke": SMOKE,
    "laptop": LAPTOP,
    "albert-mini": MINI,
    "adapt": ADAPT,
    **{
        f"albert-{size}-{version}": paper_recipe(f"albert-{size}-{version}")
        for size in ("base", "large", "xlarge", "xxlarge")
        for version in ("v1", "v2")
    },
}
