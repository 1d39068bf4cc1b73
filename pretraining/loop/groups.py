"""Groups of experiments: the tables of the paper, and ours."""

import dataclasses
import itertools
from collections.abc import Mapping

from albert_tf.models.config import FFNS, NORMS, POSITIONS, SHARINGS
from albert_tf.models.presets import MODELS_M, SHARING_M, WIDTHS_M
from albert_tf.runtime import settings
from albert_tf.runtime.errors import ConfigError
from pretraining.loop.config import PretrainConfig
from pretraining.loop.recipes import EXPERIMENTS, paper_recipe


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
      preset: a model, trained with the paper's recipe, or an experiment.
      changes: `key=value key=value`.
      published_m: millions of parameters as printed in the paper; None if it gives none.
    """

    preset: str
    changes: str = ""
    published_m: int | None = None

    def assignments(self) -> list[str]:
        """Return the changes, one by one, as `--set` takes them."""
        return self.changes.split()

    def config(self) -> PretrainConfig:
        """Return the whole configuration."""
        base = EXPERIMENTS.get(self.preset) or paper_recipe(self.preset)
        return settings.override(base, self.assignments())


@dataclasses.dataclass(frozen=True)
class Group:
    """A table.

    Attributes:
      title: its title.
      rows: its rows by name.
      is_sequence: True if a row needs the weights of another one, so that no sweep can train it.
    """

    title: str
    rows: Mapping[str, Row]
    is_sequence: bool = False


BASE, LARGE, XXLARGE = "albert-base-v1", "albert-large-v1", "albert-xxlarge-v1"
# The presets are as released: xxlarge has no dropout. The paper removes it only in Table 8.
DROPOUT = "model.hidden_dropout=0.1 model.attention_dropout=0.1"
# BERT's own recipe (arXiv 1810.04805, appendix A.2) as two runs: 90 % of the steps on short records
# and 10 % on long ones. The second run begins at the rate that one schedule over both would have
# there; each run's rate falls to 0. Batches have 131,072 pieces in both: 256 sequences of 512, as
# given there, so 1,024 of 128. 15 % of the pieces are masked, as single pieces.
BERT = (
    "objective.pair=nsp masking.max_predictions=0 masking.max_ngram=1 masking.whole_words=false "
    "optimizer.name=adamw loop.global_batch_size={} optimizer.learning_rate={} "
    "optimizer.warmup_steps={} loop.steps={}"
)
BERT_128 = BERT.format(1024, 1e-4, 10_000, 900_000)
BERT_512 = BERT.format(256, 1e-5, 0, 100_000)


def _base(sharing: str, embedding_size: int) -> tuple[str, Row]:
    """Return the name and the row of a cell of Tables 3 and 4, a variant of the base model."""
    changes = f"model.sharing={sharing} model.embedding_size={embedding_size}"
    return f"{sharing}-e{embedding_size}", Row(BASE, changes, SHARING_M[sharing, embedding_size])


def _width(hidden: int, heads: int) -> str:
    sizes = f"model.hidden_size={hidden} model.intermediate_size={4 * hidden}"
    return f"{sizes} model.num_heads={heads}"


# Unreleased widths have H / 64 heads (section 3.1), including BERT's xlarge in both its groups.
# ALBERT's xlarge has 16 heads, as released.
BERT_XLARGE = Row("bert-xlarge", "model.num_heads=32", MODELS_M["bert-xlarge"])
GROUPS = {
    "bert-width": Group(
        "hidden size of BERT (first version of the paper, Table 1)",
        {
            "h1024": Row("bert-large", _width(1024, 16), MODELS_M["bert-large"]),
            "h2048": BERT_XLARGE,
        },
    ),
    "configurations": Group(
        "configurations (Tables 1 and 2; xlarge BERT in the first version)",
        {
            "bert-base": Row("bert-base", "", MODELS_M["bert-base"]),
            "bert-large": Row("bert-large", "", MODELS_M["bert-large"]),
            "bert-xlarge": BERT_XLARGE,
            "albert-base": Row(BASE, "", MODELS_M["albert-base"]),
            "albert-large": Row(LARGE, "", MODELS_M["albert-large"]),
            "albert-xlarge": Row("albert-xlarge-v1", "", MODELS_M["albert-xlarge"]),
            "albert-xxlarge": Row(XXLARGE, DROPOUT, MODELS_M["albert-xxlarge"]),
        },
    ),
    "embedding": Group(
        "embedding size (Table 3)",
        dict(_base(sharing, size) for sharing in ("none", "all") for size in (64, 128, 256, 768)),
    ),
    "sharing": Group(
        "sharing (Table 4)",
        dict(_base(sharing, size) for size in (768, 128) for sharing in SHARINGS),
    ),
    "groups": Group(
        "groups of layers that share (section 4.5, without a table)",
        {str(groups): Row(BASE, f"model.num_groups={groups}") for groups in (1, 2, 3, 4, 6, 12)},
    ),
    "objective": Group(
        "sentence prediction (Table 5)",
        {pair: Row(BASE, f"objective.pair={pair}") for pair in ("none", "nsp", "sop")},
    ),
    "equal-time": Group(
        "equal training time: 34 and 32 hours (Table 6)",
        {
            "bert-large": Row("bert-large", "loop.steps=400000"),
            "albert-xxlarge": Row(XXLARGE, f"loop.steps=125000 {DROPOUT}"),
        },
    ),
    "additional-data": Group(
        "additional data (Table 7): one configuration, two values of --data",
        {
            "without": Row(BASE),
            "with": Row(BASE),
        },
    ),
    "dropout": Group(
        "dropout (Table 8)",
        {
            "with": Row(XXLARGE, f"loop.steps=1000000 {DROPOUT}"),
            "without": Row(XXLARGE, "loop.steps=1000000"),
        },
    ),
    "longer": Group(
        "the final models (Tables 9 and 10), on the additional data",
        {
            "1m": Row("albert-xxlarge-v2", "loop.steps=1000000"),
            "1.5m": Row("albert-xxlarge-v2", "loop.steps=1500000"),
        },
    ),
    "depth": Group(
        "depth (Table 11)",
        {
            str(layers): Row(LARGE, f"model.num_layers={layers}", MODELS_M["albert-large"])
            for layers in (1, 3, 6, 12, 24, 48)
        },
    ),
    "width": Group(
        "width of three layers (Table 12)",
        {
            f"h{hidden}": Row(
                LARGE, f"model.num_layers=3 {_width(hidden, hidden // 64)}", published_m
            )
            for hidden, published_m in WIDTHS_M.items()
        },
    ),
    "deep-and-wide": Group(
        "depth at width 4096, 64 heads (Table 13)",
        {str(layers): Row(XXLARGE, f"model.num_layers={layers} {DROPOUT}") for layers in (12, 24)},
    ),
    "masking-rate": Group(
        "percent of pieces predicted (ours; the reference predicts 15 percent, at most 20 pieces)",
        {
            str(percent): Row(BASE, f"masking.rate={percent / 100} masking.max_predictions=0")
            for percent in (10, 15, 20, 30, 40)
        },
    ),
    "ngram": Group(
        "longest n-gram masked (ours; the paper has 3)",
        {str(longest): Row(BASE, f"masking.max_ngram={longest}") for longest in (1, 2, 3)},
    ),
    "block": Group(
        "norm, positions and feed-forward (ours; the paper's is post-learned-plain)",
        {
            "-".join(block): Row(
                BASE, "model.norm={} model.positions={} model.ffn={}".format(*block)
            )
            for block in itertools.product(NORMS, POSITIONS, FFNS)
        },
    ),
    "recipe": Group(
        "the recipe of albert-mini (ours)",
        {
            "itself": Row("albert-mini"),
            "rate-0.0005": Row("albert-mini", "optimizer.learning_rate=0.0005"),
            "rate-0.002": Row("albert-mini", "optimizer.learning_rate=0.002"),
            "one-group": Row("albert-mini", "model.num_groups=1"),
            "deep": Row("albert-mini", f"model.num_layers=12 {_width(256, 4)}"),
            "wide": Row("albert-mini", f"model.num_layers=3 {_width(512, 8)}"),
            "batch-32": Row("albert-mini", "loop.global_batch_size=32"),
            "lamb": Row("albert-mini", "optimizer.name=lamb optimizer.learning_rate=0.0035"),
            "muon": Row("albert-mini", "optimizer.name=muon"),
            "linear": Row("albert-mini", "optimizer.decay_steps=0"),
            "mask-30": Row("albert-mini", "masking.rate=0.3"),
            "mask-30-15": Row("albert-mini", "masking.first_rate=0.3"),
            "muon-mask-30-15": Row("albert-mini", "optimizer.name=muon masking.first_rate=0.3"),
            "ngram-3": Row("albert-mini", "masking.max_ngram=3"),
            "pairs-1": Row("albert-mini", "objective.pair_weight=1.0"),
            "no-pairs": Row("albert-mini", "objective.pair=none"),
        },
    ),
    "bert-recipe": Group(
        "BERT's recipe in two runs (ours): records of 128, then --init of that on 512",
        {
            f"{size}-{length}": Row(f"bert-{size}", changes)
            for size in ("base", "large")
            for length, changes in ((128, BERT_128), (512, BERT_512))
        },
        is_sequence=True,
    ),
}


def experiment(name: str) -> PretrainConfig:
    """Return the experiment `name`; a ConfigError for an unknown one suggests similar names."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    rows = {
        f"{group}/{row}": value for group in GROUPS for row, value in GROUPS[group].rows.items()
    }
    if name not in rows:
        raise ConfigError(
            f"--experiment: {settings.unknown_key(name, [*EXPERIMENTS, *rows], 'experiment')}"
        )
    return rows[name].config()


def group_of(name: str) -> Group:
    """Return the group `name`; a ConfigError for an unknown one suggests similar names."""
    if name not in GROUPS:
        raise ConfigError(f"--group: {settings.unknown_key(name, GROUPS, 'group')}")
    return GROUPS[name]
