"""Tests that configuration is typed and strict, and that its errors name key, rule and value."""

import dataclasses
import json

import numpy as np
import pytest

from albert_tf.runtime import settings
from albert_tf.runtime.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Inner:
    layers: int = 2
    rate: float = 0.5
    names: tuple[str, ...] = ("a", "b")
    sizes: tuple[int, ...] = ()
    limit: int | None = None

    def __post_init__(self):
        if self.layers < 1:
            raise ConfigError(f"`layers` must be positive. Received: {self.layers}.")


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    name: str = "x"
    on: bool = False


@pytest.mark.parametrize(
    ("assignment", "changed"),
    [
        ("name=y=z", {"name": "y=z"}),
        ("name=", {"name": ""}),
        ("on=true", {"on": True}),
        ("on=0", {"on": False}),
        ("inner.layers=7", {"inner": Inner(layers=7)}),
        (" inner.layers =7", {"inner": Inner(layers=7)}),
        ("inner.rate=1e-3", {"inner": Inner(rate=1e-3)}),
        ("inner.rate=1", {"inner": Inner(rate=1.0)}),
        ("inner.names=c,d,e", {"inner": Inner(names=("c", "d", "e"))}),
        ("inner.names=", {"inner": Inner(names=())}),
        ("inner.sizes=3,4", {"inner": Inner(sizes=(3, 4))}),
        ("inner.limit=5", {"inner": Inner(limit=5)}),
        ("inner.limit=none", {"inner": Inner()}),
    ],
)
def test_override(assignment, changed):
    tree = settings.override(Outer(), [assignment])
    assert tree == Outer(**changed)
    assert type(tree.inner.rate) is float


def test_later_assignments_win_and_the_tree_is_not_changed():
    tree = Outer()
    assert settings.override(tree, ["name=a", "inner.layers=3", "name=b"]).name == "b"
    assert tree == Outer()


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("name", ["key=value", "'name'"]),
        ("nam=3", ["unknown key `nam`", "Did you mean name?"]),
        ("inner.layer=3", ["unknown key `inner.layer`", "inner.layers"]),
        ("iner.layers=3", ["unknown key `iner`", "inner"]),
        ("name.x=3", ["`name` is not a section", "'name.x'"]),
        ("inner=3", ["`inner` is a section", "inner.NAME=value"]),
        ("inner.layers=2.5", ["`inner.layers`", "int", "'2.5'"]),
        ("inner.layers=", ["`inner.layers`", "int", "''"]),
        ("inner.layers.x=3", ["`inner.layers` is not a section"]),
        ("inner.rate=fast", ["`inner.rate`", "float", "'fast'"]),
        ("inner.sizes=3,x", ["`inner.sizes`", "int", "'x'"]),
        ("inner.limit=x", ["`inner.limit`", "int", "'x'"]),
        ("on=maybe", ["`on`", "bool", "'maybe'"]),
        ("inner.layers=0", ["`layers`", "positive", "0"]),
        ("layers=3", ["unknown key `layers`", "Did you mean inner.layers?"]),
        ("=3", ["unknown key ``"]),
    ],
)
def test_override_errors(assignment, words):
    with pytest.raises(ConfigError) as error:
        settings.override(Outer(), [assignment])
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_dict_round_trip_is_plain_json():
    tree = Outer(inner=Inner(sizes=(1, 2)))
    plain = settings.to_dict(tree)
    assert plain["inner"]["sizes"] == [1, 2]
    assert settings.from_dict(Outer, plain) == tree
    assert settings.from_dict(Outer, {}) == Outer()


def test_numbers_of_numpy_become_json():
    values = Inner(layers=np.int64(3), rate=np.float32(0.5), names=tuple(np.array(["x"])))
    other = dataclasses.replace(values, names=np.array(["x"]), sizes=[])
    assert settings.to_dict(Inner(sizes=[np.int32(1)]))["sizes"] == [1]
    for tree in (values, other):
        plain = json.loads(json.dumps(settings.to_dict(tree)))
        assert plain == {"layers": 3, "rate": 0.5, "names": ["x"], "sizes": [], "limit": None}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"nam": 1}, ["unknown key `nam`", "name"]),
        ({"inner": {"layer": 1}}, ["unknown key `inner.layer`", "inner.layers"]),
        ({"inner": 3}, ["`inner`", "section", "3"]),
        ({"inner": {"layers": "2"}}, ["`inner.layers`", "int", "'2'"]),
        ({"inner": {"layers": None}}, ["`inner.layers`", "int", "None"]),
        ({"inner": {"names": "ab"}}, ["`inner.names`", "tuple", "'ab'"]),
        ({"inner": {"sizes": [1, "x"]}}, ["`inner.sizes`", "int", "'x'"]),
        ({"on": 1}, ["`on`", "bool", "1"]),
        ({"name": True}, ["`name`", "str", "True"]),
    ],
)
def test_from_dict_errors(values, words):
    with pytest.raises(ConfigError) as error:
        settings.from_dict(Outer, values)
    for word in words:
        assert word in str(error.value)


@dataclasses.dataclass(frozen=True)
class Required:
    name: str
    free: dict[str, int]
    rate: float = 1.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "`the configuration` must be a section of keys. Received: []."),
        ({"name": "x"}, "`a.free` must be stated, but the key is missing."),
        ({"rate": 2}, "`a.name`, `a.free` must be stated, but the key is missing."),
        ({"name": "x", "free": []}, "`a.free` must be of type dict. Received: []."),
        ({"rate": 10**400}, f"`a.rate` must be of type float. Received: 1{'0' * 99}...."),
    ],
)
def test_required_and_free_keys(values, message):
    with pytest.raises(ConfigError) as error:
        settings.from_dict(Required, values, "a." if values != [] else "")
    assert str(error.value) == message


def test_a_plain_dict_is_kept():
    tree = Required("x", {"a": 1, "b": {"c": []}})
    assert settings.from_dict(Required, settings.to_dict(tree)) == tree


def test_defaults_are_those_of_the_classes():
    tree = Outer(inner=Inner(layers=3, names=("a",)), on=True)
    assert settings.defaults_of(tree) == settings.to_dict(Outer())
    assert "name" not in settings.defaults_of(Required("x", {}))


def test_differing_keys():
    left, right = Outer(), Outer(inner=Inner(layers=3, names=("a",)), on=True)
    assert settings.differing_keys(left, left) == []
    assert settings.differing_keys(left, settings.to_dict(left)) == []
    assert settings.differing_keys(left, right) == [
        "inner.layers: 2 != 3",
        "inner.names: ['a', 'b'] != ['a']",
        "on: False != True",
    ]
    assert settings.differing_keys({"a": 1}, {}) == ["a: 1 != '<absent>'"]
    assert settings.differing_keys({"a": {}}, {"a": 1}) == ["a: {} != 1"]


def test_of_lists_the_differing_entries_alone_are_named():
    records = {"tokenizer": "one", "build": {"corpus": "x" * 500, "split": "all"}}
    other = {"tokenizer": "two", "build": {"corpus": "x" * 500, "split": "train"}}
    left, right = {"records": [records, records]}, {"records": (records, other)}
    assert settings.differing_keys(left, {"records": (records, records)}) == []
    assert settings.differing_keys(left, right) == [
        "records.1.build.split: 'all' != 'train'",
        "records.1.tokenizer: 'one' != 'two'",
    ]
    (line,) = settings.differing_keys(left, {"records": [records]})
    assert line.startswith("records: [{'tokenizer': 'one'") and len(line) < 250


def test_far_from_every_key_lists_them_all():
    assert settings.unknown_key("qqq", ["b", "a"]) == "unknown key `qqq`. Valid keys: a, b."
