"""Specs: YAML in and out, what fits together, and every mistake as a sentence."""

from __future__ import annotations

import dataclasses

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ba3us.auto.guard import source_only_spec
from ba3us.errors import UserError
from ba3us.run.spec import FORMAT, Spec, check_precision, is_images, place


def written(tmp_path, content) -> Spec:
    path = tmp_path / "run.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return Spec.read(path)


def test_what_is_written_is_read(tmp_path):
    spec = Spec(
        source=str(tmp_path / "s.npz"),
        target=str(tmp_path / "t.npz"),
        method="pada",
        method_params={"steps": 7, "tau": 2.0},
        protocol="office31",
        task="A->W",
        selection="last",
        n_threads=2,
        precision="bfloat16",
    )
    (tmp_path / "spec.yaml").write_text(spec.to_yaml())
    assert Spec.read(tmp_path / "spec.yaml") == spec


@given(
    seed=st.integers(0, 2**40),
    n_threads=st.none() | st.integers(1, 64),
    views=st.none() | st.integers(0, 9),
    cache_gb=st.none() | st.floats(0, 1e6),
    method_params=st.dictionaries(
        st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5), max_size=3
    ),
)
def test_any_values_go_through_yaml(tmp_path_factory, **fields):
    spec = Spec(**fields)
    path = tmp_path_factory.mktemp("spec") / "s.yaml"
    path.write_text(spec.to_yaml(), encoding="utf-8")
    assert Spec.read(path) == spec


def test_a_new_spec_holds_only_what_was_asked_for():
    assert yaml.safe_load(Spec().to_yaml()) == {"format": FORMAT}
    assert set(yaml.safe_load(Spec(seed=3, method="dann").to_yaml())) == {"format", "seed", "method"}


def test_paths_start_at_the_specs_folder(tmp_path):
    spec = written(tmp_path, {"source": "deep/s.npz", "target": "/t.npz"})
    assert spec.source == str(tmp_path / "deep" / "s.npz") and spec.target == "/t.npz"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a: [", "not valid YAML"),
        ("- 1", "is not a spec of ba3us"),
        ("hello", "is not a spec of ba3us"),
        ({"format": "ba3us spec 99"}, "of another version"),
        ({"sead": 1}, "unknown key 'sead': did you mean 'seed'"),
        ({1: 2}, "unknown key 1"),
        ({"seed": "one"}, "seed is 'one': it must be a whole number"),
        ({"seed": 1.5}, "seed is 1.5: it must be a whole number"),
        ({"seed": True}, "seed is True"),
        ({"seed": -1}, "seed is -1: it must be 0 or more"),
        ({"n_threads": 0}, "threads is 0: it must be 1 or more"),
        ({"source": ["a"]}, r"source is \['a'\]: it must be text"),
        ({"method_params": [1]}, r"method_params is \[1\]: it must be names with values"),
        ({"method_params": {1: 2}}, "method_params is"),
        ({"ten_crop": "yes"}, "ten_crop is 'yes': it must be true or false"),
        ({"precision": "int8"}, "Unknown precision 'int8'"),
        ({"size": 3}, "size is 3: it must be 8 or more"),
        ({"views": -1}, "views is -1"),
        ({"cache_gb": -1}, "cache_gb is -1"),
        ({"task": "A->W"}, "'A->W' is given without a protocol"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("a: &a [*a]", "unknown key 'a'|not valid"),
    ],
)
def test_mistakes_are_sentences(tmp_path, content, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        written(tmp_path, content)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "run.yaml") in str(caught.value)


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(UserError, match="There is no spec at"):
        Spec.read(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not valid YAML"):
        Spec.read(tmp_path / "b.yaml")


def test_a_function_can_choose_but_not_be_written():
    spec = Spec(selection=lambda outputs: 0.0)
    with pytest.raises(UserError, match="can't be written"):
        spec.to_yaml()


def test_settings_of_a_protocol(tmp_path):
    assert Spec(method="ba3us", protocol="office31").method_options().beta == 5.0  # type: ignore[attr-defined]
    assert Spec(method="ba3us", protocol="office31", method_params={"beta": 2}).method_options().beta == 2.0  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="Unknown protocol 'ofice31': did you mean 'office31'"):
        Spec(method="ba3us", protocol="ofice31").method_options()


def test_what_counts_as_images(tmp_path):
    (tmp_path / "odd.npz").mkdir()
    assert is_images(tmp_path) and is_images("list.txt") and is_images(tmp_path / "odd.npz")
    assert not is_images("x.npz") and not is_images("x.npy")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weights", "w"), ("train", "head"), ("views", 0), ("size", 9), ("ten_crop", True), ("root", "r"),
        ("classes", "c"), ("compile", True), ("cache_gb", 1.0), ("workers", 1),
    ],
)  # fmt: skip
def test_fields_of_images_are_refused_for_features(name, value):
    with pytest.raises(UserError, match=f"`{name}` is not for features such as s.npz"):
        _ = Spec(source="s.npz", target="t.npz", **{name: value}).kind
    with pytest.raises(UserError, match="`labels` is not for images"):
        _ = Spec(source="s", target="t", labels="y.npy").kind
    with pytest.raises(UserError, match="source or a target is missing"):
        _ = Spec(source="s.npz").kind


def test_every_field_has_a_place_in_the_documentation():
    documented = Spec.__doc__ or ""
    for f in dataclasses.fields(Spec):
        assert f.name in documented, f.name


def test_a_run_trained_in_float16_elsewhere_can_be_looked_at_on_a_cpu():
    spec = Spec(device="cpu", precision="float16")
    assert place(spec) == "cpu"
    with pytest.raises(UserError, match="can't train in float16"):
        check_precision(spec)


def test_source_only_is_defined_once():
    """As the automatic choice always had it: defaults but for steps and batch size."""
    for auto in (Spec(), Spec(method_params={"steps": 7, "batch_size": 20}, seed=3, standardize=False)):
        config, plain = auto.method_options(), source_only_spec(auto)
        shared = {"steps": config.steps, "batch_size": config.batch_size}
        assert plain.method_options() == Spec(method="source-only", method_params=shared).method_options()
        assert (plain.seed, plain.standardize, plain.selection) == (auto.seed, auto.standardize, "entropy")
    named = Spec(method="ba3us", method_params={"warmup_steps": 5, "steps": 6}, correct_prior=True)
    assert named.source_only().method_options().steps == 11 and not named.source_only().correct_prior
