"""The datasets by name, as --task names them."""

from albert_tf.runtime import settings
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from finetuning.datasets.choices.multiple_choice import MultipleChoiceTable
from finetuning.datasets.choices.race import RACE
from finetuning.datasets.choices.swag import Swag
from finetuning.datasets.dataset import Dataset, Reading
from finetuning.datasets.embeddings.embedding_data import (
    EmbeddingData,
    PairClassification,
    Similarity,
)
from finetuning.datasets.glue import GLUE
from finetuning.datasets.multi_label import MultiLabel
from finetuning.datasets.rankings.ranking_data import RankingData
from finetuning.datasets.spans.squad import SQUAD
from finetuning.datasets.text_classification import TextClassification
from finetuning.datasets.text_regression import TextRegression
from finetuning.datasets.tokens.token_classification import TokenClassification

# The datasets whose files are the user's own.
OWN: dict[str, Dataset] = {
    "text_classification": TextClassification(),
    "text_regression": TextRegression(),
    "multi_label": MultiLabel(),
    "multiple_choice": MultipleChoiceTable(),
    "token_classification": TokenClassification(),
    "embedding": EmbeddingData(),
    "ranking": RankingData(),
}
DATASETS: dict[str, Dataset] = {
    **GLUE,
    **SQUAD,
    **RACE,
    "swag": Swag(),
    "sts": Similarity(),
    "pair_classification": PairClassification(),
    **OWN,
}
# The datasets with a training part.
TRAINED = {name: data for name, data in DATASETS.items() if not data.trained_on}


def trained_dataset(name: str, flag: str) -> Dataset:
    """Return the dataset `name` of `flag`, such as "--task".

    Raises:
      InputError: the name is unknown, or the dataset has no training part.
    """
    if name in DATASETS and (other := DATASETS[name].trained_on):
        raise InputError(
            f"{flag}: {name} has no training part. Fine-tune on {other}, then pass --task={name} "
            "to finetuning.predict."
        )
    if name not in TRAINED:
        raise InputError(f"{flag}: {settings.unknown_key(name, TRAINED, 'task')}")
    return TRAINED[name]


def dataset_name(run_dir: str, given: str | None) -> str:
    """Return the name in DATASETS of the dataset to read for a run.

    Args:
      run_dir: the run.
      given: the name from --task; None: the run's own.

    Raises:
      InputError: the name is unknown, or there is none, as for a model that was converted or saved
        by a script.
    """
    name = given or RunDir(run_dir).config().get("name")
    if name is None:
        raise InputError(
            f"--run_dir={run_dir} does not state its dataset, as it was converted or saved by a "
            f"script. Pass --task, one of {', '.join(DATASETS)}."
        )
    if str(name) not in DATASETS:
        raise InputError(f"--task: {settings.unknown_key(str(name), DATASETS, 'task')}")
    return name


def reading_of(run_dir: str, name: str | None = None) -> Reading:
    """Return the columns and examples that a run uses of its own dataset.

    For another dataset `name`, return the defaults.
    """
    config = RunDir(run_dir).config()
    if name not in (None, config.get("name")):
        return Reading()
    return settings.from_dict(Reading, config.get("reading", {}), "reading.")
