"""Tests of the ids that runtimes without a tokenizer are given."""

import json

import numpy as np
import pytest

from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.texts import featurize_texts
from benchmarks.runtimes import Ids

TEXTS = ["the value", "", "of the object " * 30, "naïve 漢字 🙂"]


@pytest.mark.parametrize("pair", [False, True])
def test_ids_are_those_of_the_model_padded_to_the_longest(small_tokenizer, tmp_path, pair):
    task = ClassifierSettings(("no", "yes"), seq_length=24, pair=pair)
    small_tokenizer.save(tmp_path / "tokenizer")
    (tmp_path / "config.json").write_text(json.dumps({"task": {"seq_length": 24}}))
    find = Ids.of(str(tmp_path))
    texts = [[a, b] for a in TEXTS for b in TEXTS] if pair else TEXTS
    examples = [TextExample(*text) if pair else TextExample(text) for text in texts]
    sequences = featurize_texts(examples, small_tokenizer, task).sequences
    for chosen in (np.arange(len(texts)), np.array([0]), np.array([1, 0])):
        found = find([texts[i] for i in chosen])
        wanted = sequences.inputs(chosen, int(sequences.lengths[chosen].max()))
        assert found.keys() == wanted.keys()
        for name, value in found.items():
            assert value.dtype == np.int32
            np.testing.assert_array_equal(value, wanted[name], name)
