"""What every kind of task must do; a kind gives its cases only.

Exports are in exports_test.py, and runs from files in runs_test.py. Models are of random weights,
which tell their inputs apart. What is a kind's own, such as numbers computed by hand, is in its own
tests.
"""

import dataclasses
import json
import pickle
import shutil
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.convert import native
from albert_tf.convert.__main__ import ConvertOptions
from albert_tf.convert.__main__ import main as convert
from albert_tf.convert.bundle import MismatchPolicy
from albert_tf.models.encoder import AlbertEncoder
from albert_tf.runtime import settings
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.tasks.kinds import EXPORTS, KINDS
from albert_tf.tasks.predictor import Predictor, load_predictor, predict, task_of
from finetuning.datasets.dataset import Data
from finetuning.kinds.kind import SQUARED_ERROR, TeacherOutput
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting import report
from finetuning.training.keys import require_settings
from tests.kinds.cases import CASES
from tests.kinds.comparing import odd_examples, same
from tests.kinds.toy_kind import FinetuningOrdinal


def test_the_registries_name_the_same_kinds():
    tried = {each.name for each in CASES.values()} - {FinetuningOrdinal.kind.name}
    assert [*KINDS] == [*FINETUNING] and tried == {*KINDS}
    for name, kind in KINDS.items():
        assert kind is EXPORTS[name] is FINETUNING[name].kind and kind.name == name


def test_settings_come_back_from_json(case):
    values = json.loads(json.dumps(settings.to_dict(case.settings)))
    assert values["kind"] == case.name
    assert settings.from_dict(KINDS[case.name].settings, values) == case.settings
    assert case.settings.limits(case.settings.seq_length) == {}
    short = case.settings.replace(**case.settings.limits(16))
    assert short.seq_length == 16 and short.head() == case.settings.head()


def test_an_example_is_read_back_from_a_file_of_predictions(case, tmp_path):
    path, examples = str(tmp_path / "dev.jsonl"), [*case.examples, *case.more]
    unlabeled = [case.unlabeled(text) for text in case.texts]
    given = [{"number": number} for number in range(len(examples + unlabeled))]
    report.write_predictions(path, case.settings, given, examples + unlabeled)
    assert report.read_predictions(path, case.settings) == (examples + unlabeled, given)


def test_a_model_in_memory_is_saved_as_a_run(predictor, tmp_path):
    path = str(tmp_path / "run")
    albert_tf.save_model(predictor.model, path, predictor.tokenizer)
    saved = load_predictor(path)
    assert saved.task == predictor.task
    assert saved.tokenizer.fingerprint == predictor.tokenizer.fingerprint
    for one, other in zip(saved.model.weights, predictor.model.weights, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=one.name)


def test_an_impossible_setting_is_named_with_its_file(path, tmp_path):
    folder = shutil.copytree(path, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    for key, value in (("seq_length", 0), ("other", 1)):
        changed = config | {"task": config["task"] | {key: value}}
        (folder / "config.json").write_text(json.dumps(changed))
        with pytest.raises(ConfigError, match=f"run/config.json': .*`task.{key}`"):
            task_of(str(folder))


def test_settings_have_defaults_except_for_labels(case):
    """`--set` is checked before the data are read."""
    fields = dataclasses.fields(case.settings)
    required = {f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING}
    assert required <= {"labels"}


def test_settings_that_follow_from_the_data_cannot_be_set(case):
    task = type(case.settings)
    assert {*task.HEAD, *task.FROM_DATA} <= {field.name for field in dataclasses.fields(task)}
    for name in ("kind", *task.FROM_DATA):
        with pytest.raises(ConfigError, match=f"`task.{name}` follows from the data"):
            require_settings(task, [f"task.{name}=1"])
    require_settings(task, ["task.seq_length=16"])


def test_sequences_longer_than_the_encoder_reads_are_refused(case, path, tmp_path):
    folder = shutil.copytree(path, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    config["model"]["max_positions"] = 4
    (folder / "config.json").write_text(json.dumps(config))
    message = f"config.json: `task.seq_length` must not exceed .*: {case.settings.seq_length}, 4"
    with pytest.raises(InputError, match=message):
        load_predictor(str(folder))


def test_examples_alone_and_together_have_one_prediction(case, predictor):
    examples = [*case.examples, *case.more, *odd_examples(case)]
    together = predictor(examples)
    assert len(together) == len(examples) and predictor([]) == []
    broken = {"label": "?", "answers": (("?",),), "entities": ((0, 1, "?"),)}  # never read
    for example, answer in zip(examples, together, strict=True):
        same(predictor([example])[0], answer)
        known = {field.name for field in dataclasses.fields(example)} & set(broken)
        changed = dataclasses.replace(example, **{name: broken[name] for name in known})
        same(predictor([changed])[0], answer)
        assert json.loads(json.dumps(answer)) == answer
    if KINDS[case.name].takes_strings and not case.settings.pair:
        same(predictor([case.texts[0]]), predictor([case.unlabeled(case.texts[0])]))


def test_wrong_examples_are_refused(case, predictor):
    for wrong in (3, None, ("a", "b")):
        with pytest.raises(InputError):
            predictor([wrong])
    broken = dataclasses.replace(case.unlabeled("a"), **{case.examples[0].named_texts[0][0]: 5})
    with pytest.raises(InputError, match="must be a string"):
        predictor([broken])


def test_the_head_drops_in_training(name, case, predictor):
    """The encoder does not. Nor do the head of SQuAD 1.1, and vectors that are contrasted."""
    kind, encoder = KINDS[case.name], predictor.model.encoder
    if not hasattr(case.settings, "dropout"):
        return
    assert encoder.config.hidden_dropout == encoder.config.attention_dropout == 0
    model = kind.model(AlbertEncoder(encoder.config), case.settings.replace(dropout=0.5))
    features = kind.featurize(case.examples, predictor.tokenizer, case.settings)
    inputs, _ = features.batch(tf.range(len(features)))
    one, two = (tf.nest.flatten(model.create_weights()(inputs, training=True)) for _ in range(2))
    differ = any(np.any(left != right) for left, right in zip(one, two, strict=True))
    assert differ == (name not in ("span", "classifier by contrast"))


def outputs_of(predictor: Predictor, examples: list[Any]) -> tuple[Any, Any]:
    kind = KINDS[predictor.task.kind]
    features = kind.featurize(examples, predictor.tokenizer, predictor.task)
    return predict(predictor.model, features, 4), features


def test_a_mean_of_equal_members_is_each_of_them(case, predictor):
    kind, examples = KINDS[case.name], case.examples
    outputs, features = outputs_of(predictor, examples)
    mean = kind.average([outputs, outputs])
    same(
        [case.of_mean(each) for each in kind.decode(mean, features, examples, predictor.task)],
        kind.decode(outputs, features, examples, predictor.task),
    )


def test_transformers_keeps_settings_and_weights(case, path, tmp_path, capsys):
    head = KINDS[case.name].transformers
    options = ConvertOptions(path, f"huggingface:{tmp_path / 'theirs'}")
    if head is None or head.refusal(case.settings):
        with pytest.raises(InputError, match="transformers"):
            convert(options)
        return
    convert(options)
    convert(ConvertOptions(f"huggingface:{tmp_path / 'theirs'}", str(tmp_path / "ours")))
    assert "does not state" not in capsys.readouterr().out
    before, after = (native.read(each, MismatchPolicy()) for each in (path, f"{tmp_path}/ours"))
    assert (after.config, after.task) == (before.config, case.settings)
    for weight, value in before.weights.items():
        if head.has_pooler or "/pooler/" not in weight:
            np.testing.assert_allclose(after.weights[weight], value, rtol=1e-6, err_msg=weight)
    theirs = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert theirs["architectures"] == [head.architecture]


def test_a_line_of_input(case):
    tuned = FINETUNING[case.name]
    row = json.loads(json.dumps(case.json_line))
    assert tuned.of_json(row, case.settings, ()) == case.unlabeled(case.texts[0])
    with pytest.raises(ValueError, match="must"):
        tuned.of_json({name: 3 for name in row}, case.settings, ())
    assert tuned.expected_line(case.settings).startswith("A line must be ")


def test_the_answer_without_reading_and_the_card(case, predictor):
    tuned, data = FINETUNING[case.name], Data(case.settings, case.examples, {"dev": case.examples})
    predictions = predictor(case.examples)
    text = "\n".join(tuned.card_sections(case.settings, predictions, case.examples))
    assert "## Worst mistakes" in text
    constant = tuned.constant_answer(data)
    if constant is not None:
        words, answer = constant
        assert words and answer.keys() <= predictions[0].keys()
    for example in case.examples:
        assert tuned.by_name(dataclasses.asdict(example), case.settings).keys() == {
            field.name for field in dataclasses.fields(example)
        }


def test_a_student_is_trained_on_a_teacher_s_outputs(case, predictor):
    tuned = FINETUNING[case.name]
    if not tuned.student_losses:
        return
    outputs, features = outputs_of(predictor, case.examples)
    taught = tuned.taught_outputs(features, outputs)
    assert len(taught) == len(case.examples)
    flat = [TeacherOutput(np.ravel(values), starts) for values, starts in taught]
    unlabeled = [tuned.of_texts(*example.texts) for example in case.examples]
    of_student = tuned.taught_features(unlabeled, flat, predictor.tokenizer, predictor.task)
    outputs = predict(predictor.model, of_student, 4)
    loss = tuned.taught_loss(predictor.task, SQUARED_ERROR, 1.0)
    targets = of_student.targets["label"]
    assert float(loss(tf.constant(targets), tf.constant(outputs))) == pytest.approx(0, abs=1e-9)


def test_examples_and_features_survive_a_pickle(case, small_tokenizer):
    """As workers and caches need it."""
    kind = KINDS[case.name]
    features = kind.featurize(case.examples, small_tokenizer, case.settings)
    assert isinstance(features, kind.features)
    assert features.targets and features.num_examples == len(case.examples)
    assert pickle.loads(pickle.dumps(case.examples)) == case.examples
    unlabeled = [case.unlabeled(text) for text in case.texts]
    assert not kind.featurize(unlabeled, small_tokenizer, case.settings).targets
