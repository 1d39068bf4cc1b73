"""Print a model's parameter counts per component, next to a BERT of the same shape.

    python -m albert_tf.info --preset=albert-base-v2
    python -m albert_tf.info --config=runs/base --set sharing=attention
    python -m albert_tf.info --paper

The tables are Markdown. --paper prints the sizes in the paper's tables, published and computed.
"""

import dataclasses
import json

from albert_tf.models.config import SHARINGS, AlbertConfig, head_param_counts, param_counts
from albert_tf.models.presets import MODELS_M, SHARING_M, WIDTHS_M
from albert_tf.runtime import pretrained, settings
from albert_tf.runtime.commands import CommandOptions, option, run
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.report_text import markdown_table


@dataclasses.dataclass(frozen=True)
class InfoOptions(CommandOptions):
    """The command line of `albert_tf.info`."""

    preset: str | None = option("a published or an included model, e.g. albert-base-v2", None)
    config: str | None = option(
        "a config.json, or a folder that holds one, such as a run", None, path=True
    )
    paper: bool = option("print the paper's size tables instead", False)
    dry_run: bool = option("print only the configuration", False)
    set: tuple[str, ...] = option("key=value of the model, such as sharing=attention", ())

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen = [self.preset is not None, self.config is not None, self.paper]
        if sum(chosen) != 1:
            raise InputError(
                "pass exactly one of --preset, --config and --paper. "
                f"Received: --preset={self.preset}, --config={self.config}, --paper={self.paper}."
            )
        if self.paper and self.set:
            raise InputError(f"--set requires --preset or --config. Received: {self.set[0]!r}.")


def main(options: InfoOptions) -> None:
    """Print the tables."""
    if options.paper:
        print(paper_tables())
        return
    if options.config is not None:
        config = AlbertConfig.from_json(pretrained.locate(options.config))
    else:
        config = AlbertConfig.from_preset(options.preset or "")
    config = settings.override(config, options.set)
    if options.dry_run:
        print(json.dumps(settings.to_dict(config), indent=1))
    else:
        print(size_table(options.preset or options.config or "", config))


def bert_of_same_shape(config: AlbertConfig) -> AlbertConfig:
    """Return `config` with BERT's block, nothing shared and embeddings of the hidden size."""
    paper = {"norm": "post", "positions": "learned", "ffn": "plain"}
    size = config.hidden_size
    return config.replace(sharing="none", num_groups=1, embedding_size=size, **paper)


def size_table(name: str, config: AlbertConfig) -> str:
    """Return a table of parameters per component, for the model and its BERT.

    The totals are with and without the pretraining heads.
    """
    counts, bert_counts = _counts(config), _counts(bert_of_same_shape(config))
    rows = []
    for key, count in counts.items():  # BERT has a subset of the components
        bert = bert_counts.get(key, 0)
        rows.append(
            (key, f"{count:,}", f"{bert:,}", f"{bert / count:.2f}" if count and bert else "")
        )
    return markdown_table(("parameters", name, "BERT of the same shape", "ratio"), rows)


def _counts(config: AlbertConfig) -> dict[str, int]:
    encoder, heads = config.param_count(), head_param_counts(config)
    total = {"total with pretraining heads": encoder + sum(heads.values())}
    return param_counts(config) | {"total without heads": encoder} | heads | total


@dataclasses.dataclass(frozen=True)
class PublishedSize:
    """A row of a table of the paper (arXiv 1909.11942): a model and its size in millions."""

    table: str
    model: str
    config: AlbertConfig
    published_m: int

    @property
    def computed_m(self) -> float:
        """The parameters of the encoder with its pooler, in millions."""
        return self.config.param_count() / 1e6


def published_sizes() -> list[PublishedSize]:
    """Return all sizes in Tables 1, 3, 4 and 12; Tables 2, 11 and 13 have those of Table 1."""
    base = AlbertConfig.from_preset("albert-base-v2")
    rows = []
    for name, millions in MODELS_M.items():
        preset = name if name.startswith("bert") else f"{name}-v2"
        config = AlbertConfig.from_preset(preset)
        rows.append(PublishedSize("Table 1: models", preset, config, millions))
    cells = [
        *(("Table 3: embedding size", s, e) for s in ("none", "all") for e in (64, 128, 256, 768)),
        *(("Table 4: sharing", s, e) for e in (768, 128) for s in SHARINGS),
    ]
    for title, sharing, size in cells:
        config = base.replace(sharing=sharing, embedding_size=size)
        name = f"`sharing={sharing}`, `embedding_size={size}`"
        rows.append(PublishedSize(title, name, config, SHARING_M[sharing, size]))
    large = AlbertConfig.from_preset("albert-large-v2").replace(num_layers=3)
    for hidden, millions in WIDTHS_M.items():
        sizes = {"hidden_size": hidden, "intermediate_size": 4 * hidden, "num_heads": hidden // 64}
        name = f"`hidden_size={hidden}`"
        title = "Table 12: width of three layers"
        rows.append(PublishedSize(title, name, large.replace(**sizes), millions))
    return rows


def paper_tables() -> str:
    """Return the published and the computed sizes, one Markdown table per table of the paper."""
    rows = published_sizes()
    tables = []
    for title in dict.fromkeys(row.table for row in rows):
        cells = [_compared(row) for row in rows if row.table == title]
        header = ("model", "published", "computed, without heads", "difference")
        tables.append(f"**{title}**\n\n{markdown_table(header, cells)}")
    return "\n\n".join(tables)


def _compared(row: PublishedSize) -> tuple[str, str, str, str]:
    difference = row.computed_m - row.published_m
    return (
        row.model,
        f"{row.published_m}M",
        f"{row.computed_m:.1f}M",
        f"{difference:+.1f}M ({difference / row.published_m:+.1%})",
    )


if __name__ == "__main__":
    run(main, InfoOptions, __doc__)
