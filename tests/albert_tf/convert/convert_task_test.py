"""Tests that fine-tuned runs keep their heads: ours -> Hugging Face's -> ours, or one line why."""

import functools
import json
import os
import pathlib
import shutil
import stat

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from albert_tf import load_predictor, load_pretrainer
from albert_tf.convert import native
from albert_tf.convert.__main__ import ConvertOptions, main
from albert_tf.convert.bundle import Bundle, MismatchPolicy, head_shapes, weight_shapes
from albert_tf.convert.huggingface import folder as huggingface
from albert_tf.convert.huggingface import task as huggingface_task
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import commands, settings
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.predictor import task_of
from albert_tf.tasks.ranking.model import RankingSettings
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.tokens.model import TokenSettings

STRICT = MismatchPolicy()
JOINT = SpanSettings(answerable=True, seq_length=40)
SETTINGS = {
    "classifier": ClassifierSettings(("no", "maybe", "yes"), seq_length=24, pair=True, dropout=0.2),
    "multi_label": MultiLabelSettings(("no", "yes"), (0.25, 0.5), seq_length=32),
    "regressor": RegressorSettings(seq_length=32, center=0.0, scale=4.0),
    "span": SpanSettings(seq_length=40, query_length=8, doc_stride=7, n_best=3),
    "multiple_choice": MultipleChoiceSettings(seq_length=38, num_choices=3, qa_length=20),
    "token_classifier": TokenSettings(("place", "person"), seq_length=32, doc_stride=7),
    "ranking": RankingSettings(seq_length=32, num_candidates=4, loss="pointwise"),
}
TEXTS = ["the value of the object", "x"]
HEADS = {  # their names and shapes, with H = 32
    "classifier": {"classifier.weight": (3, 32), "classifier.bias": (3,)},
    "multi_label": {"classifier.weight": (2, 32), "classifier.bias": (2,)},
    "regressor": {"classifier.weight": (1, 32), "classifier.bias": (1,)},
    "span": {"qa_outputs.weight": (2, 32), "qa_outputs.bias": (2,)},
    "multiple_choice": {"classifier.weight": (1, 32), "classifier.bias": (1,)},
    "token_classifier": {"classifier.weight": (5, 32), "classifier.bias": (5,)},
    "ranking": {"classifier.weight": (1, 32), "classifier.bias": (1,)},
}
WITHOUT_POOLER = ("span", "token_classifier")


def convert(*argv: str) -> None:
    main(commands.parse(ConvertOptions, ["convert", *argv], "", ""))


def random_weights(config, task) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    shapes = weight_shapes(config, task)
    return {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def save(tiny, small_tokenizer, tmp_path):
    """(task, changes of the model) -> the folder `ours` of a run with random weights."""

    def save(task, **changes) -> str:
        config = tiny.replace(**changes)
        (tmp_path / "ours").mkdir()
        bundle = Bundle(config, random_weights(config, task), small_tokenizer, task)
        native.write(bundle, str(tmp_path / "ours"))
        return str(tmp_path / "ours")

    return save


def edit(folder, *left_out: str, **values) -> None:
    """Changes keys of a folder's config.json."""
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        old = json.load(file)
    new = {key: value for key, value in (old | values).items() if key not in left_out}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(new, file)


@pytest.mark.parametrize("kind", SETTINGS)
def test_the_names_and_shapes_of_transformers(kind, tiny):
    tensors = huggingface.from_ours(tiny, random_weights(tiny, SETTINGS[kind]), SETTINGS[kind])
    found = {n: v.shape for n, v in tensors.items() if not n.startswith("albert.")}
    assert found == HEADS[kind]
    assert ("albert.pooler.weight" in tensors) == (kind not in WITHOUT_POOLER)


def test_the_keys_that_transformers_reads():
    values = huggingface_task.to_json(SETTINGS["classifier"])
    assert values["architectures"] == ["AlbertForSequenceClassification"]
    assert values["id2label"] == {"0": "no", "1": "maybe", "2": "yes"}
    assert values["label2id"] == {"no": 0, "maybe": 1, "yes": 2}
    assert values["problem_type"] == "single_label_classification"
    assert values["classifier_dropout_prob"] == 0.2
    values = huggingface_task.to_json(SETTINGS["multi_label"])
    assert values["problem_type"] == "multi_label_classification"
    assert values["id2label"] == {"0": "no", "1": "yes"}
    values = huggingface_task.to_json(SETTINGS["regressor"])
    assert (values["problem_type"], values["id2label"]) == ("regression", {"0": "LABEL_0"})
    values = huggingface_task.to_json(SETTINGS["ranking"])
    assert values["problem_type"] == "regression"  # transformers needs two labels for others
    assert values["sentence_transformers"]["activation_fn"].endswith(".Identity")
    assert values["id2label"] == {"0": "LABEL_0"}
    values = huggingface_task.to_json(SETTINGS["span"])
    assert values["architectures"] == ["AlbertForQuestionAnswering"] and "id2label" not in values
    values = huggingface_task.to_json(SETTINGS["multiple_choice"])
    assert values["architectures"] == ["AlbertForMultipleChoice"]


@pytest.mark.slow
def test_a_regression_is_written_in_its_own_unit(save, tmp_path):
    task = RegressorSettings(seq_length=16, center=270.3, scale=91.7)
    ours, theirs, back = save(task), tmp_path / "theirs", str(tmp_path / "back")
    convert(f"--from={ours}", f"--to=huggingface:{theirs}")
    head = load_predictor(ours).model.head
    tensors = safetensors.numpy.load_file(theirs / "model.safetensors")
    np.testing.assert_allclose(tensors["classifier.weight"].T, head.kernel * 91.7, rtol=1e-6)
    np.testing.assert_allclose(tensors["classifier.bias"], head.bias * 91.7 + 270.3, rtol=1e-6)
    convert(f"--from=huggingface:{theirs}", f"--to={back}")
    predictor = load_predictor(back)
    assert predictor.task == task
    np.testing.assert_allclose(predictor.model.head.kernel, head.kernel, rtol=2e-7)
    answers = [load_predictor(path)(TEXTS) for path in (ours, back)]
    scores = [[answer["score"] for answer in each] for each in answers]
    np.testing.assert_allclose(*scores, rtol=1e-6)


@pytest.mark.parametrize("task", [SETTINGS["classifier"], JOINT], ids=["classifier", "joint"])
def test_our_own_format_keeps_the_head(task, save, tiny, tmp_path):
    ours, new = save(task), str(tmp_path / "new")
    unshare = ("--init_groups_from_shared", "--set=sharing=none")
    convert(f"--from={ours}", f"--to={new}", *unshare, "--set=task.seq_length=20")
    before, after = native.read(ours, STRICT).weights, native.read(new, STRICT)
    assert settings.differing_keys(after.task, task) == [f"seq_length: 20 != {task.seq_length}"]
    for name in head_shapes(tiny, task):
        np.testing.assert_array_equal(after.weights[name], before[name])


@pytest.mark.slow
def test_a_head_may_be_left_behind(save, tmp_path, capsys):
    ours, heads = save(SETTINGS["classifier"]), "--allow_missing=mlm_head,pair_head"
    theirs = f"huggingface:{tmp_path / 'theirs'}"
    with pytest.raises(InputError, match="7 missing"):
        convert(f"--from={ours}", f"--to={theirs}", "--ignore=head")
    convert(f"--from={ours}", f"--to=google:{tmp_path / 'google'}", "--ignore=head", heads)
    convert(f"--from={ours}", f"--to={theirs}")
    for ignored in ("head", "classifier"):
        back = str(tmp_path / ignored)
        convert(f"--from={theirs}", f"--to={back}", f"--ignore={ignored}", heads)
        kernel = load_pretrainer(back).encoder.pooler.kernel
        np.testing.assert_array_equal(kernel, load_predictor(ours).model.encoder.pooler.kernel)
    printed = capsys.readouterr().out.splitlines()
    assert "no mlm_head; no pair_head" in printed[0] and "fine-tuned" not in printed[0]
    assert printed[2].endswith("; fine-tuned, kind classifier")


def test_heads_without_a_place_in_other_formats_are_refused(save, tmp_path):
    ours = save(JOINT)
    for target, words in (
        (
            "huggingface",
            "no class for the joint head of SQuAD 2.0.*albert_tf.export.*--ignore=head",
        ),
        ("google", "google: must be given a pretrained model.*'span'.*--ignore=head"),
    ):
        with pytest.raises(InputError, match=words):
            convert(f"--from={ours}", f"--to={target}:{tmp_path / 'new'}")
    assert os.listdir(tmp_path) == ["ours"]


class TestFoldersOfOthers:
    """As transformers writes them: without our section."""

    @pytest.fixture(scope="class")
    def written(self, tiny, small_tokenizer, tmp_path_factory):
        """(kind) -> the folder with our section."""

        @functools.cache
        def write(kind: str) -> pathlib.Path:
            folder = tmp_path_factory.mktemp(kind)
            (folder / "ours").mkdir()
            weights = random_weights(tiny, SETTINGS[kind])
            bundle = Bundle(tiny, weights, small_tokenizer, SETTINGS[kind])
            native.write(bundle, str(folder / "ours"))
            convert(f"--from={folder / 'ours'}", f"--to=huggingface:{folder / 'theirs'}")
            return folder / "theirs"

        return write

    @pytest.fixture
    def theirs(self, written, tmp_path):
        """(kind) -> the folder."""

        def write(kind: str, *left_out: str, **values) -> str:
            folder = shutil.copytree(written(kind), tmp_path / "theirs").as_posix()
            edit(folder, huggingface_task.SECTION, *left_out, **values)
            return folder

        return write

    @pytest.mark.parametrize(
        ("kind", "stated", "task"),
        [
            (
                "classifier",
                "task.pair=false, task.seq_length=40: change them with --set",
                ClassifierSettings(("no", "maybe", "yes"), seq_length=40, dropout=0.2),
            ),
            ("regressor", "task.pair=false, task.seq_length=40:", RegressorSettings(seq_length=40)),
            (
                "span",
                "task.seq_length=40, task.query_length=64, task.doc_stride=13, task.max_ans",
                SpanSettings(seq_length=40, doc_stride=13),
            ),
            (
                "multiple_choice",
                "task.seq_length=40, task.num_choices=4, task.qa_length=128:",
                MultipleChoiceSettings(seq_length=40),
            ),
            (
                "ranking",
                "task.seq_length=40, task.num_candidates=16, task.loss=listwise:",
                RankingSettings(seq_length=40),
            ),
        ],
    )
    def test_unstated_settings_are_defaults_and_named(
        self, kind, stated, task, theirs, tmp_path, capsys
    ):
        source = f"huggingface:{theirs(kind)}"
        capsys.readouterr()
        convert(f"--from={source}", f"--to={tmp_path / 'back'}")
        assert f"{source} does not state {stated}" in capsys.readouterr().out
        assert task_of(str(tmp_path / "back")) == task

    def test_the_user_states_it(self, theirs, tmp_path, capsys):
        source, back = f"huggingface:{theirs('classifier', 'id2label', num_labels=3)}", "back"
        assert huggingface_task._labels({"num_labels": 1}, "") == ("LABEL_0",)
        values = ("--set=task.pair=true", "--set=task.labels=a,b,c", "--set=hidden_dropout=0.1")
        capsys.readouterr()
        convert(f"--from={source}", f"--to={tmp_path / back}", *values)
        assert "does not state task.seq_length=40: change" in capsys.readouterr().out
        predictor = load_predictor(str(tmp_path / back))
        assert predictor.task.pair and predictor.task.labels == ("a", "b", "c")

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"id2label": {"0": "a", "2": "b", "3": "c"}}, "each number from 0 to 2.*'3': 'c'"),
            ({"id2label": {"0": "a", "1": "b", "2": "a"}}, "a different label.*Correct the file"),
            ({"id2label": {"x": "a", "1": "b", "2": "c"}}, "each number from 0 to 2"),
            ({"id2label": ["a", "b"]}, "id2label` must be an object"),
            ({"id2label": {"0": "a", "1": "b"}}, r"classifier.bias \[3\], expected \[2\]"),
            ({"id2label": None}, r"classifier.weight \[3, 32\], expected \[2, 32\]"),
            ({"id2label": None, "num_labels": 10**9}, "a number from 1 to 1,048,576. Received: 10"),
            (
                {"problem_type": "ranking"},
                "2 or more labels, multi_label_classification .* 'ranking' with 3",
            ),
            (
                {"problem_type": "regression"},
                "must be single_.* or regression with 1 label; .*'regression' with 3",
            ),
            (
                {"architectures": ["AlbertForQuestionAnswering"]},
                "2 missing.*qa_outputs.*2 unexpected.*classifier",
            ),
            ({"architectures": ["AlbertForPreTraining"]}, "7 missing.*2 unexpected.*classifier"),
            ({"classifier_dropout_prob": None}, "task.dropout` must be of type float"),
            (
                {huggingface_task.SECTION: {"kind": "classifier", "pairs": True}},
                "task.pairs`. Did you mean.*task.pair",
            ),
        ],
    )
    def test_invalid_configurations_are_refused(self, changes, words, theirs, tmp_path):
        folder = theirs("classifier", **changes)
        if huggingface_task.SECTION in changes:
            edit(folder, **changes)
        with pytest.raises(InputError, match=words):
            convert(f"--from=huggingface:{folder}", f"--to={tmp_path / 'back'}")
        assert not (tmp_path / "back").exists()

    @pytest.mark.parametrize(
        ("setting", "words"),
        [
            ("task.labels=a,b", "keep the number of `task.labels`.*Received: task.labels=a,b"),
            ("task.kind=regressor", "and the values of task.kind"),
            ("task.seq_length=41", "must not exceed the model's `max_positions`.*41, 40"),
            ("task.pairs=true", "unknown key `task.pairs`. Did you mean task.pair?"),
        ],
    )
    def test_settings_that_the_weights_fix_cannot_be_set(self, setting, words, theirs, tmp_path):
        with pytest.raises(ConfigError, match=words):
            convert(
                f"--from=huggingface:{theirs('classifier')}",
                f"--to={tmp_path / 'back'}",
                f"--set={setting}",
            )

    def test_labels_in_another_order_take_their_rows_along(self, theirs, tmp_path):
        """The probabilities of each name stay, as do the thresholds of multi-label models."""
        labels = SETTINGS["multi_label"].labels
        found = []
        for name, order in (("one", labels), ("two", labels[::-1])):
            changes = f"--set=task.labels={','.join(order)}"
            source = (
                f"huggingface:{theirs('multi_label')}" if name == "one" else str(tmp_path / "one")
            )
            values = ["--set=task.thresholds=0.1,0.9"] if name == "one" else []
            convert(f"--from={source}", f"--to={tmp_path / name}", changes, *values)
            predictor = load_predictor(str(tmp_path / name))
            thresholds = dict(zip(predictor.task.labels, predictor.task.thresholds, strict=True))
            found.append((predictor(["a text"])[0]["probabilities"], thresholds))
        assert list(found[1][0]) == [*labels[::-1]] and found[0][1] == found[1][1]
        assert found[0][0] == pytest.approx(found[1][0], abs=1e-6)

    def test_tags_are_no_labels_of_words(self, theirs, tmp_path):
        source = theirs("token_classifier", id2label={str(i): f"LABEL_{i}" for i in range(5)})
        names = "--set=task.labels=O,B-x,I-x,B-y,I-y"
        with pytest.raises(ConfigError, match="must not change what the labels mean.*`id2label`"):
            convert(f"--from=huggingface:{source}", f"--to={tmp_path / 'back'}", names)

    def test_answers_to_every_question_are_noted(self, theirs, tmp_path, capsys):
        convert(f"--from=huggingface:{theirs('span')}", f"--to={tmp_path / 'back'}", "--dry_run")
        assert "a model of SQuAD 1.1, which answers every question" in capsys.readouterr().err

    def test_a_model_that_was_trained_on_there(self, theirs, tmp_path):
        """Labels and dropout of theirs count, the rest is what we wrote."""
        folder = theirs("classifier")
        written = settings.to_dict(SETTINGS["classifier"])
        labels = {"0": "x", "1": "y", "2": "z"}
        values = {huggingface_task.SECTION: written, "classifier_dropout_prob": 0}
        edit(folder, id2label=labels, **values)
        convert(f"--from=huggingface:{folder}", f"--to={tmp_path / 'back'}")
        wanted = ClassifierSettings(("x", "y", "z"), seq_length=24, pair=True, dropout=0.0)
        assert task_of(str(tmp_path / "back")) == wanted
        edit(folder, **{huggingface_task.SECTION: written | {"kind": "span"}})
        convert(f"--from=huggingface:{folder}", f"--to={tmp_path / 'other'}")
        assert not task_of(str(tmp_path / "other")).pair

    def test_several_labels(self, theirs, tmp_path):
        """The thresholds are ours, unless the labels are others."""
        folder = theirs("multi_label", huggingface_task.SECTION)
        convert(f"--from=huggingface:{folder}", f"--to={tmp_path / 'back'}")
        task = task_of(str(tmp_path / "back"))
        assert (task.kind, task.thresholds) == ("multi_label", (0.5, 0.5))
        written = settings.to_dict(SETTINGS["multi_label"])
        for thresholds, wanted in (([0.1, 0.2], (0.1, 0.2)), ([0.1], (0.5, 0.5))):
            section = written | {"thresholds": thresholds}
            edit(folder, **{huggingface_task.SECTION: section})
            config = json.loads((pathlib.Path(folder) / "config.json").read_text())
            task, _ = huggingface_task.read(config, AlbertConfig(), STRICT, "config.json")
            assert task.thresholds == wanted
        edit(folder, id2label={"0": "yes", "1": "no"})
        edit(folder, **{huggingface_task.SECTION: written | {"thresholds": [0.1, 0.2]}})
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        task, _ = huggingface_task.read(config, AlbertConfig(), STRICT, "config.json")
        assert (task.labels, task.thresholds) == (("yes", "no"), (0.5, 0.5))

    @pytest.mark.slow_parameters("tags2-found2", "tags3-found3")
    @pytest.mark.parametrize(
        ("tags", "found"),
        [
            (("O", "B-x", "I-x", "B-y", "I-y"), (("x", "y"), "bio")),
            (("NOUN", "VERB", "B", "X", "Y"), (("NOUN", "VERB", "B", "X", "Y"), "words")),
            (("O", "I-x", "B-x", "B-y", "I-y"), (("x", "y"), "bio")),
            (("B-x", "I-x", "O", "B-y", "I-y"), (("x", "y"), "bio")),
            (("B-y", "B-x", "I-x", "I-y", "O"), (("y", "x"), "bio")),  # run_ner.py's order
            (("O", "x", "y", "z", "B-z"), None),
            (("O", "B-x", "I-x", "B-y", "I-z"), None),
        ],
    )
    def test_tags(self, tags, found, theirs, tmp_path):
        folder = theirs("token_classifier", id2label=dict(enumerate(tags)))
        if found is None:
            with pytest.raises(InputError, match="`id2label` must be O, and B-X and I-X for"):
                convert(f"--from=huggingface:{folder}", f"--to={tmp_path / 'back'}")
            return
        convert(f"--from=huggingface:{folder}", f"--to={tmp_path / 'back'}")
        task = task_of(str(tmp_path / "back"))
        assert (task.labels, task.scheme) == found and {*task.tags} == {*tags}
        rows = safetensors.numpy.load_file(f"{folder}/model.safetensors")
        bias = dict(zip(tags, rows["classifier.bias"], strict=True))
        reader = tf.train.load_checkpoint(f"{tmp_path}/back/checkpoints")
        kernel, mine = (
            reader.get_tensor(f"model/head/{name}/.ATTRIBUTES/VARIABLE_VALUE")
            for name in ("kernel", "bias")
        )
        assert dict(zip(task.tags, mine, strict=True)) == bias
        order = [tags.index(tag) for tag in task.tags]
        np.testing.assert_array_equal(kernel.T, rows["classifier.weight"][order])
        again = f"{tmp_path}/again"
        convert(f"--from={tmp_path / 'back'}", f"--to=huggingface:{again}")
        values = json.loads(pathlib.Path(again, "config.json").read_text())
        written = safetensors.numpy.load_file(f"{again}/model.safetensors")["classifier.bias"]
        assert {values["id2label"][str(i)]: x for i, x in enumerate(written)} == bias

    def test_one_label_and_no_problem_type_is_a_regression(self, theirs, tmp_path):
        folder = theirs("regressor", "problem_type")
        convert(f"--from=huggingface:{folder}", f"--to={tmp_path / 'back'}")
        assert task_of(str(tmp_path / "back")).kind == "regressor"


def test_settings_of_a_task_need_one(pretrained, tmp_path):
    with pytest.raises(ConfigError, match="--set task.pair=true needs a fine-tuned model"):
        convert(f"--from={pretrained}", f"--to={tmp_path / 'new'}", "--set=task.pair=true")


@pytest.mark.parametrize("target", ["huggingface:", "google:", ""])
def test_files_have_the_usual_mode(target, pretrained, tmp_path):
    previous = os.umask(0o027)
    try:
        convert(f"--from={pretrained}", f"--to={target}{tmp_path / 'new'}")
    finally:
        os.umask(previous)
    files = [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
    modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in files}
    assert len(files) > 3 and set(modes.values()) == {"0o640"}, modes
