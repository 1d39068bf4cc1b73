"""The keys of --set: checked before any data is read, with the nearest ones of what is unknown."""

import pytest

from albert_tf.runtime.errors import ConfigError
from albert_tf.tasks.kinds import KINDS
from finetuning import distill, table, train
from finetuning.datasets import TRAINED
from finetuning.kinds.registry import FINETUNING
from finetuning.training.keys import require_settings


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("training.lr", r"unknown key `training.lr`\. Did you mean training\.learning_rate\?"),
        ("lr", r"Did you mean training\.learning_rate\?"),
        ("learning_rate", r"Did you mean training\.learning_rate\?"),
        ("training.learningrate", r"Did you mean training\.learning_rate\?"),
        ("training.bs", r"Did you mean training\.batch_size\?"),
        ("training.wd", r"Did you mean training\.weight_decay_rate\?"),
        ("training.weight_decay", r"Did you mean training\.weight_decay_rate\?"),
        ("training.warmup", r"mean training\.warmup_fraction or training\.warmup_steps\?"),
        ("training.gradient_accumulation_steps", r"mean training\.accumulation_steps\?"),
        ("training.max_length", r"Did you mean task\.seq_length\?"),
        ("training.dropout", r"Did you mean task\.dropout\?"),
        ("xyz", r"unknown key `xyz`\. Valid keys: seed, training\.epochs, .*task\.seq_length"),
        ("task.labels", r"`task\.labels` follows from the data or from --init .* These can: seed,"),
        ("model.num_layers", r"`model\.num_layers` follows from the data"),
        ("task.doc_stride", r"unknown key `task\.doc_stride`\. "),  # a key of other kinds
    ],
)
def test_unknown_and_unsettable_keys_are_refused(key: str, words: str):
    with pytest.raises(ConfigError, match=words):
        require_settings(KINDS["classifier"].settings, ("seed=1", f"{key}=1"))


def test_known_keys_are_accepted():
    chosen = ("seed=1", "training.metric=f1", " task.seq_length =8", "model.hidden_dropout=0.1")
    for kind in KINDS.values():
        require_settings(kind.settings, chosen)
    require_settings(KINDS["span"].settings, ("task.doc_stride=64",))


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("training.learning_rate=abc", r"`training\.learning_rate` must be of type float"),
        ("training.batch_size=0", r"`training\.batch_size` must be positive"),
        ("task.seq_length=x", r"`task\.seq_length` must be of type int"),
        ("model.hidden_dropout=2", "`?hidden_dropout`? must be in"),
        ("seed", "takes key=value"),
    ],
)
def test_values_that_cannot_be_set(assignment: str, words: str):
    for kind in KINDS.values():
        with pytest.raises(ConfigError, match=words):
            require_settings(kind.settings, (assignment,))


@pytest.mark.parametrize("name", TRAINED)
def test_keys_are_checked_before_anything_is_read(name: str):
    unknown = ("training.lr=1e-5",)
    options = train.FinetuneOptions(name, "no run", "no data", init="no encoder", set=unknown)
    with pytest.raises(ConfigError, match="unknown key `training.lr`"):
        train.main(options)
    with pytest.raises(ConfigError, match="unknown key `training.lr`"):
        table.main(table.TableOptions(("no run",), name, "no data", "no output", set=unknown))
    if not FINETUNING[TRAINED[name].kind].student_losses:  # no task of `distill`
        return
    values = distill.DistillOptions(
        "no teacher", name, "no output", "no data", student_layers=1, set=unknown
    )
    with pytest.raises(ConfigError, match="unknown key `training.lr`"):
        distill.main(values)
