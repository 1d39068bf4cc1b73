"""Cross-validation, with models that only show what they were trained on."""

import pytest

from albert_tf.tasks.examples import TextExample
from finetuning.kinds.baselines.regularization import DEFAULT, FOLDS, STRENGTHS, best_strength


def examples(count: int, of_each: int) -> list[TextExample]:
    """Sentences with their phrases, which are `of_each` in all, in turn."""
    return [
        TextExample(f"w{i} " * (of_each - n) + "!" * n, None, n)
        for n in range(of_each)
        for i in range(count)
    ]


@pytest.mark.parametrize(("count", "of_each"), [(20, 3), (3, 4), (2, 1)])
def test_every_example_is_predicted_once_without_its_group(count: int, of_each: int):
    train = examples(count, of_each)
    tested: list[set[str]] = []

    def prepare(known: list[TextExample], asked: list[TextExample]):
        words = [{example.first.split()[0] for example in part} for part in (known, asked)]
        assert not words[0] & words[1] and len(known) + len(asked) == len(train)
        tested.append(words[1])
        return lambda strength: [{"example": example, "strength": strength} for example in asked]

    def score(predictions: list[dict], known: list[TextExample]) -> float:
        assert [each["example"] for each in predictions] == known == train
        return {1.0: 0.5, 10.0: 0.5}.get(predictions[0]["strength"], 0.25)

    assert best_strength(prepare, train, score) == 1.0  # the stronger of equally good ones
    assert len(tested) == min(count, FOLDS)
    assert sorted(word for words in tested for word in words) == sorted(
        f"w{i}" for i in range(count)
    )


def test_one_group_cannot_be_divided():
    train = [TextExample("An apple."), TextExample("an apple"), TextExample("apple")]
    assert best_strength(pytest.fail, train, pytest.fail) == DEFAULT in STRENGTHS


@pytest.mark.parametrize(
    ("scores", "best", "noted"),
    [
        ((5, 4, 3, 2, 1), 0.1, True),
        ((1, 2, 3, 4, 5), 1000.0, True),
        ((1, 2, 3, 5, 4), 100.0, False),
        ((1, 1, 1, 1, 1), 0.1, False),  # none is better than another
    ],
)
def test_a_note_on_the_ends_of_the_grid(scores, best: float, noted: bool, capsys):
    of_strength = dict(zip(STRENGTHS, scores, strict=True))

    def prepare(known: list[TextExample], asked: list[TextExample]):
        return lambda strength: [{"strength": strength}] * len(asked)

    def score(predictions: list[dict], known: list[TextExample]) -> float:
        return of_strength[predictions[0]["strength"]]

    assert best_strength(prepare, examples(3, 2), score) == best
    note = f"0.1, 1.0, 10.0, 100.0, 1000.0, cross-validation chose {best}, the last at one end."
    assert (note in capsys.readouterr().err) == noted
