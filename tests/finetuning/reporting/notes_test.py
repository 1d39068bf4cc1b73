"""Notes on examples that repeat others."""

from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.embedding.examples import ContrastExample, SearchExample
from albert_tf.tasks.embedding.model import EmbeddingSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.ranking.examples import RankingExample
from albert_tf.tasks.ranking.model import RankingSettings
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.tasks.tokens.model import TokenSettings
from finetuning.datasets.dataset import Data
from finetuning.reporting.notes import repeated

TRAIN = [TextExample("a", None, 0), TextExample("b", None, 1), TextExample("b", None, 0)]
TRAIN += [TextExample("a", None, 0), TextExample("a", "b", 1)]


def test_contradictions_and_shared_examples():
    """The repeated `a` has one label; the pair is another example; dev has one new text."""
    dev = [TextExample(text, None, 0) for text in ("a", "b", "c")]
    data = Data(ClassifierSettings(("x", "y")), TRAIN, {"dev": dev})
    assert list(repeated(data)) == [
        "1 training texts occur with different labels, such as 'b'",
        "2 of 3 dev examples are training examples too, so that its scores are too high",
    ]


def test_contradictory_spans_of_one_text():
    spans = [((0, 3, "PER"),), ((0, 3, "PER"),), ((4, 6, "LOC"),), None]
    train = [TokenExample("Ann Bo", None, each) for each in spans[:3]] + [TokenExample("c")]
    (note,) = repeated(Data(TokenSettings(("LOC", "PER")), train, {}))
    assert note == "1 training texts occur with different labels, such as 'Ann Bo'"
    assert not list(repeated(Data(TokenSettings(("LOC", "PER")), train[:2], {})))


def test_questions_of_searches_and_rankings_are_recognized():
    searches = [SearchExample(query, label=(("1", 1.0),)) for query in "ab"]
    pairs = [ContrastExample("a", "x", negatives=("y",)), ContrastExample("c", "b")]
    rankings = [RankingExample(query, ("x", "y", "z"), (1, 0, 0)) for query in "ab"]
    trained = [RankingExample("a", ("x", "y"), (1, 0))]
    for task, train, dev in (
        (EmbeddingSettings(), pairs, searches),
        (RankingSettings(), trained, rankings),
    ):
        (note,) = repeated(Data(task, train, {"dev": dev}))
        assert note.startswith("1 of 2 dev examples are training examples too")


def test_scores_may_differ():
    data = Data(RegressorSettings(), TRAIN, {"dev": [TextExample("c", None, 0.5)]})
    assert not list(repeated(data))
