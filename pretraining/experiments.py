"""List the named configurations for `--experiment=NAME`, whose values `--set` changes.

    python -m pretraining.experiments                  # every group, with parameters
    python -m pretraining.experiments --group=sharing

NAME is smoke, laptop, albert-mini, adapt, a published model (albert-base-v2), or GROUP/ROW, such
as sharing/attention-e128. A group is a table of the paper (arXiv 1909.11942v6) or, if its title
says so, ours. A row is a model with its recipe (paper: section 4.1) and changes, as for `--set`.
"""

import dataclasses

from albert_tf.runtime import commands
from albert_tf.runtime.report_text import markdown_table
from pretraining.loop.groups import GROUPS, group_of


def group_table(name: str) -> str:
    """Return a group as a Markdown table; parameters are those of the encoder with pooler."""
    group, cells = group_of(name), []
    for row, value in group.rows.items():
        model = value.config().model
        published = f"{value.published_m}M" if value.published_m else ""
        changes = f"`{value.changes}`" if value.changes else ""
        size = f"{model.param_count() / 1e6:.1f}M"
        cells.append(
            (f"{name}/{row}", value.preset, changes, str(model.num_heads), size, published)
        )
    header = ("experiment", "model", "changes", "heads", "parameters", "published")
    return f"**{group.title}**\n\n{markdown_table(header, cells)}"


@dataclasses.dataclass(frozen=True)
class ListOptions:
    """The command line of `pretraining.experiments`."""

    group: str | None = commands.option("print only this group", None)
    dry_run: bool = commands.option("print only the titles of the groups", False)


def main(options: ListOptions) -> None:
    """Print the groups."""
    names = list(GROUPS) if options.group is None else [options.group]
    tables = [group_of(name).title if options.dry_run else group_table(name) for name in names]
    print("\n\n".join(tables))


if __name__ == "__main__":
    commands.run(main, ListOptions, __doc__)
