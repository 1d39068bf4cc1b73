"""Named configurations: `--experiment=NAME`, any value of it changed with `--set`."""

from albert_tf import settings
from albert_tf.config import AlbertConfig
from albert_tf.errors import ConfigError
from pretraining.config import LoopConfig, OptimizerConfig, PretrainConfig

# Seconds on any machine, for tests and a first try.
SMOKE = PretrainConfig(
    model=AlbertConfig(
        embedding_size=32, hidden_size=64, num_layers=2, num_heads=2, intermediate_size=128,
        max_positions=64,
    ),
    optimizer=OptimizerConfig(learning_rate=0.01, warmup_steps=10),
    loop=LoopConfig(steps=40, global_batch_size=16, steps_per_loop=10, checkpoint_every=20),
)  # fmt: skip

# Minutes on a laptop: enough to see every number move. Narrow and with a high rate, because wider
# models or lower rates spend such a short run on the frequencies of pieces (docs/findings.md).
LAPTOP = PretrainConfig(
    model=AlbertConfig(
        embedding_size=64, hidden_size=128, num_layers=4, num_heads=2, intermediate_size=512,
        max_positions=64,
    ),
    optimizer=OptimizerConfig(learning_rate=0.01, warmup_steps=100),
    loop=LoopConfig(steps=1500, global_batch_size=32, steps_per_loop=50, checkpoint_every=250),
)  # fmt: skip


def _paper(preset: str) -> PretrainConfig:
    """The paper's recipe (section 4.1): LAMB 0.00176, batch 4096, 125,000 steps, 3,125 warm-up."""
    return PretrainConfig(model=AlbertConfig.from_preset(preset))


EXPERIMENTS = {
    "smoke": SMOKE,
    "laptop": LAPTOP,
    **{
        f"albert-{size}-{version}": _paper(f"albert-{size}-{version}")
        for size in ("base", "large", "xlarge", "xxlarge")
        for version in ("v1", "v2")
    },
}


def experiment(name: str) -> PretrainConfig:
    """The experiment of that name; an unknown one is an error that names a near one."""
    if name not in EXPERIMENTS:
        raise ConfigError(f"--experiment: {settings.unknown_key(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]
