"""Bad input: one sentence with what was wrong and what to do, in Python and on the command line."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import ba3us
from arrays_toys import FAST, clouds
from ba3us import PartialAdapter
from ba3us.cli import main
from ba3us.cli.app import option_names
from ba3us.errors import UserError

X, Y, XT, YT = clouds()


def changed(array: np.ndarray, row: int, value, dtype=None) -> np.ndarray:
    made = array.astype(dtype or array.dtype).copy()
    made[row] = value
    return made


def is_one_sentence(text: str) -> bool:
    return "\n" not in text and text.endswith((".", "?")) and ":" in text and "Traceback" not in text


# --- in Python --------------------------------------------------------------------------------------------

ARRAYS = [
    # wrong shapes
    (X[:, 0], Y, XT, r"The source has shape \(80,\): Reshape your data to \[n, features\]"),
    (X[:, :, None], Y, XT, r"The source has shape \(80, 6, 1\)"),
    (X, Y, XT[0], r"The target has shape \(6,\)"),
    (3, Y, XT, r"The source has shape \(\)"),
    (X[:, :0], Y, XT[:, :0], "0 feature"),
    ([[1, 2], [3]], ["a", "b"], None, "The source can't be used"),
    (X, Y, XT[:, :5], "The target has 5 features, the source 6: give both the same columns"),
    # empty
    (X[:0], Y[:0], XT, "The source is empty: give at least one sample"),
    (X, Y, XT[:0], "The target is empty: give at least one sample"),
    # values
    (changed(X, 7, np.nan), Y, XT, r"The source has NaN or infinite values \(first in row 7\): drop"),
    (X, Y, changed(XT, 3, -np.inf), r"The target has NaN or infinite values \(first in row 3\)"),
    (X.astype(str), Y, XT, "The source can't be used"),
    (X + 1j, Y, XT, "Complex data not supported"),
    (pd.DataFrame({"a": ["x"] * 80, "b": 1.0}), Y, XT, "The source can't be used .*: give an array of numbers"),
    (sparse.csr_matrix(X), Y, XT, "The source is a sparse matrix"),
    # labels
    (X, None, XT, "requires y to be passed"),
    (X, Y[:79], XT, "The source has 80 rows but 79 labels"),
    (X, np.stack([Y, Y], axis=1), XT, r"The labels have shape \(80, 2\)"),
    (X, changed(Y, 4, None, object), XT, "The label of row 4 is None: label such rows or drop them"),
    (X, changed(Y, 5, np.nan, object), XT, "The label of row 5 is nan"),
    (X, changed(np.zeros(80), 6, np.nan), XT, "The label of row 6 is nan"),
    (X, changed(np.zeros(80), 6, np.inf), XT, "The label of row 6 is inf"),
    (X, pd.Series(Y, dtype="string").mask(np.arange(80) == 2), XT, "The label of row 2 is"),
    (X, np.linspace(0, 1, 80), XT, "Unknown label type: continuous"),
    (X, np.zeros(80) + 1j, XT, "Unknown label type: complex128"),
    (X, changed(Y, 4, 17, object), XT, r"can't be ordered \(int, str\)"),
    (X, [1, "1", 2, 3] * 20, XT, r"can't be ordered \(int, str\)"),
    (X, [True, 1, 2, 3] * 20, XT, "hold 4 different values, but as an array only 3 .*: make them all strings"),
    (X, ["\ud800", "ant"] * 40, XT, "is not a text"),
    (X, np.full(80, "ant"), XT, r"only one class \(\['ant'\]\): give rows of at least two classes"),
    (X, np.full(80, "ant"), None, "only one class"),
]


@pytest.mark.parametrize(("x", "y", "xt", "sentence"), ARRAYS)
def test_arrays(x, y, xt, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        PartialAdapter("ba3us", **FAST).fit(x, y, xt)
    assert is_one_sentence(str(caught.value)) and "--" not in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"method": "ba3s"}, "Unknown method 'ba3s': did you mean 'ba3us'"),
        ({"method": "qqq"}, "Unknown method 'qqq': choose one of: .*dann"),
        ({"method": 3}, "`method` is 3: it must be text"),
        ({"method": "sspda"}, "'sspda' needs pixels, but there are feature vectors: choose another"),
        ({"method": "ba3us", "method_params": {"betta": 1}}, "Unknown option 'betta': did you mean 'beta'"),
        ({"method": "ba3us", "method_params": {"beta": -1}}, "Option 'beta' is -1: it must be 0 or more"),
        ({"method": "ba3us", "method_params": {"beta": "x"}}, "Option 'beta' is 'x': it must be a number"),
        ({"method_params": ["beta"]}, r"method_params is \['beta'\]: give a dict"),
        ({"method": "ba3us", "method_params": {"keep_classifier": True}}, "brought no pretrained classifier"),
        ({"steps": 0}, "Option 'steps' is 0: it must be at least 1"),
        ({"steps": 1.5}, "Option 'steps' is 1.5: it must be a whole number"),
        ({"batch_size": 0}, "Option 'batch_size' is 0"),
        ({"random_state": -1}, "random_state is -1: it must be 0 or more"),
        ({"selection": "entrpy"}, "`selection` 'entrpy' is for named methods: .* name a `method`"),
        ({"method": "dann", "selection": "entrpy"}, "did you mean 'entropy'"),
        ({"task": "A->W"}, "The task 'A->W' is given without a protocol: add a `protocol`"),
        ({"device": "tpu"}, "Unknown accelerator 'tpu'"),
        ({"n_threads": 0}, "`n_threads` is 0: it must be 1 or more"),
        ({"n_threads": "two"}, "`n_threads` is 'two': it must be a whole number"),
    ],
)
def test_parameters(parameters, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        PartialAdapter(**{"steps": 5, "n_threads": 1, **parameters}).fit(X, Y, XT)
    assert is_one_sentence(str(caught.value)) and "--" not in str(caught.value)


@pytest.mark.parametrize("folder", ["data", "run", "auto", "training", "nn", "export", "adapt.py"])
def test_no_message_of_the_library_names_an_option_of_the_command_line(folder):
    """Those of cli/ do; main() turns parameters in backticks into options."""
    package = Path(ba3us.__file__).parent / folder
    for file in package.rglob("*.py") if package.is_dir() else [package]:
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "").endswith(("require", "Error")):
                text = " ".join(str(part.value) for part in ast.walk(call) if isinstance(part, ast.Constant))
                assert not re.search(r"(^|[\s(])--[a-z]", text), f"{file}: {text}"


def test_the_command_line_names_options():
    assert option_names("`n_threads` is 0: it must be 1 or more.") == "--threads is 0: it must be 1 or more."
    assert option_names("Add `on_nan='retry'`, or `cache_gb=0`.") == "Add --on-nan retry, or --cache-gb 0."
    assert option_names("`skip_count_check`, `method_params`") == "--skip-count-check, --set"
    assert option_names("The file `odd` stays.") == "The file `odd` stays."


def test_a_diverging_run_says_what_to_do():
    with pytest.raises(
        UserError, match=r"The .* became nan at step .* lower learning_rate or standardise the inputs"
    ):
        PartialAdapter("ba3us", standardize=False, **FAST).fit(1e18 * X, Y, XT)


@pytest.mark.parametrize(
    ("domain", "sentence"),
    [
        (np.ones(5), r"sample_domain has shape \(5,\).* for 80 rows"),
        (np.full(80, "s"), "give one number per row"),
        (np.r_[np.ones(79), 0], "sample_domain is 0.0 in row 79: make it positive for source"),
        (np.r_[np.ones(79), np.nan], "sample_domain is nan in row 79"),
        (-np.ones(80), "sample_domain has no source row"),
    ],
)
def test_sample_domain(domain, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        PartialAdapter("ba3us", **FAST).fit(X, Y, sample_domain=domain)
    assert is_one_sentence(str(caught.value))


def test_sample_domain_and_the_rest():
    domain = np.r_[np.ones(40), -np.ones(40)]
    with pytest.raises(UserError, match="Both Xt and sample_domain are given"):
        PartialAdapter("ba3us", **FAST).fit(X, Y, XT, sample_domain=domain)
    with pytest.raises(UserError, match="X has 80 rows but 79 labels"):
        PartialAdapter("ba3us", **FAST).fit(X, Y[:79], sample_domain=domain)
    with pytest.raises(UserError, match=r"X has NaN or infinite values \(first in row 60\)"):
        PartialAdapter("ba3us", **FAST).fit(changed(X, 60, np.nan), Y, sample_domain=domain)
    with pytest.raises(UserError, match="requires y"):
        PartialAdapter("ba3us", **FAST).fit(X, None, sample_domain=domain)


@pytest.mark.parametrize("call", ["predict", "predict_proba", "transform"])
def test_predicting(call):
    model = PartialAdapter("source-only", steps=2, n_threads=1).fit(X, Y)
    for x, sentence in [
        (X[:, :5], "X has 5 features, but PartialAdapter is expecting 6 features as input: give"),
        (X[0], r"X has shape \(6,\): Reshape your data"),
        (changed(X, 9, np.inf), r"X has NaN or infinite values \(first in row 9\)"),
        (X[:0], "X is empty"),
    ]:
        with pytest.raises(UserError, match=sentence) as caught:
            getattr(model, call)(x)
        assert is_one_sentence(str(caught.value))


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (changed(X, 7, np.nan), r"The source has NaN or infinite values \(first in row 7\)"),
        (X[:, 0], r"The source has shape \(80,\)"),
        (X.astype("S4"), r"The source holds values of type \|S4: give an array of numbers"),
        (X[:, :5], "The target has 6 features, the source 5"),
    ],
)
def test_mapped_arrays(tmp_path, x, sentence):
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(UserError, match=sentence):
        PartialAdapter("ba3us", **FAST).fit(np.load(tmp_path / "x.npy", mmap_mode="r"), Y, XT)


# --- on the command line ----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with good files and bad ones."""
    monkeypatch.chdir(tmp_path)
    np.savez("s.npz", features=X, labels=Y)
    np.savez("t.npz", features=XT)
    np.savez("empty.npz", features=XT[:0])
    np.savez("narrow.npz", features=XT[:, :5])
    np.savez("columns.npz", features=XT[:, :0])
    np.savez("nan.npz", features=changed(XT, 3, np.nan))
    np.savez("flat.npz", features=X[:, 0])
    np.savez("keys.npz", x=X, y=Y)
    np.savez("short.npz", features=X, labels=Y[:70])
    np.savez("one.npz", features=X, labels=np.full(80, "ant"))
    np.savez("names.npz", features=X, labels=np.arange(80) % 4, class_names=["a", "b", "b", "c"])
    np.savez("pickled.npz", features=X, labels=Y.astype(object))
    np.save("s.npy", X)
    np.save("short.npy", Y[:70])
    np.save("objects.npy", Y.astype(object), allow_pickle=True)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "s.npz").read_bytes()[:900])
    (tmp_path / "cut.npy").write_bytes((tmp_path / "s.npy").read_bytes()[:900])
    (tmp_path / "noise.npz").write_bytes(np.random.default_rng(0).bytes(500))
    (tmp_path / "blank.npz").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "images").mkdir()
    return tmp_path


COMMANDS = [
    ("s.npz none.npz --out r", "There is no file none.npz"),
    ("none.npz t.npz --out r", "There is no file none.npz"),
    ("images t.npz --out r", "images is a folder: turn its images into a feature file"),
    ("notes.txt t.npz --out r", "notes.txt is neither .npz nor .npy"),
    ("cut.npz t.npz --out r", "cut.npz can't be read .*: it is damaged, cut short"),
    ("s.npz cut.npy --out r", "cut.npy can't be read"),
    ("noise.npz t.npz --out r", "noise.npz can't be read"),
    ("blank.npz t.npz --out r", "blank.npz can't be read"),
    ("pickled.npz t.npz --out r", "pickled.npz can't be read .*holds Python objects"),
    ("keys.npz t.npz --out r", r"keys.npz has no array 'features' \(it has: x, y\)"),
    ("short.npz t.npz --out r", r"short.npz has 80 rows of features but labels of shape \(70,\)"),
    ("flat.npz t.npz --out r", r"flat.npz have shape \(80,\)"),
    ("t.npz t.npz --out r", "t.npz has no labels: save them in it under 'labels', or give .* --labels"),
    ("t.npz s.npz --out r", "t.npz has no labels: .*, if the labelled file is the other one, name that first"),
    ("s.npz t.npz --out r --method dann --preset best", "--preset is for the automatic choice, but .* 'dann'"),
    ("names.npz t.npz --out r", "two classes called 'b'"),
    ("one.npz t.npz --out r", "only one class"),
    ("s.npz empty.npz --out r", "The target is empty"),
    ("s.npz narrow.npz --out r", r"A source sample has shape .6,., a target sample .5,."),
    ("s.npz nan.npz --out r", "The target has NaN or infinite values .first in row 3"),
    ("s.npy t.npz --out r", "s.npy has no labels: give a file with --labels"),
    ("s.npy t.npz --labels short.npy --out r", "The source has 80 rows but 70 labels"),
    ("s.npy t.npz --labels none.npy --out r", "There is no file none.npy"),
    ("s.npy t.npz --labels objects.npy --out r", "objects.npy can't be read"),
    ("s.npy t.npz --labels t.npz --out r", "The labels t.npz are not .npy"),
    ("s.npy t.npz --labels s.npy --out r", r"The labels s.npy have shape \(80, 6\)"),
    ("s.npz t.npz --labels short.npy --out r", "s.npz has labels of its own: leave --labels out"),
    ("s.npz t.npz --out r --method ba3s", "Unknown method 'ba3s': did you mean 'ba3us'"),
    ("s.npz t.npz --out r --method sspda", "needs pixels"),
    ("s.npz t.npz --out r --method ba3us --set betta=1", "Unknown option 'betta': did you mean 'beta'"),
    ("s.npz t.npz --out r --set beta", "is not of the form name=value"),
    ("s.npz t.npz --out r --method ba3us --set beta=much", "Option 'beta' is 'much': it must be a number"),
    ("s.npz t.npz --out r --steps 0", "Option 'steps' is 0"),
    ("s.npz t.npz --out r --seed -1", "--seed is -1"),
    ("s.npz t.npz --out r --threads 0", "--threads is 0"),
    ("s.npz t.npz --out r --method ba3us --evaluate-every 0", "--evaluate-every is 0: it must be 1 or more"),
    ("s.npz t.npz --out r --evaluate-every 5", "--evaluate-every 5 is for named methods"),
    ("", "A source or a target is missing"),
    ("s.npz", "A source or a target is missing"),
    ("s.npz t.npz --out r --steps 5 --set steps=6", "Both --steps and --set steps="),
    ("s.npz t.npz --out r --method ba3us --selection entropie", "did you mean 'entropy'"),
    ("s.npz t.npz --out r --protocol ofice31", "Unknown protocol 'ofice31': did you mean 'office31'"),
    ("s.npz t.npz --out r --task A->W", "is given without a protocol"),
    ("s.npz t.npz --out r --protocol office31 --task A->X", "Unknown task 'A->X'"),
    ("s.npz t.npz --out r --precision int8", "Unknown --precision 'int8'"),
    ("s.npz t.npz --out r --device cpu --precision float16", "can't train in float16"),
    ("s.npz t.npz --out r --root x", "--root is not for features"),
    ("s.npz t.npz --out r --device tpu", "Unknown accelerator 'tpu'"),
    ("s.npz t.npz --out r --devices none", "The number of devices is 'none'"),
    ("s.npz t.npz --out r --config none.yaml", "There is no spec at none.yaml"),
    ("s.npz t.npz --out r --config notes.txt", "notes.txt is not a spec of ba3us"),
    ("s.npz t.npz --out r --backbone resnet50", "There is no network 'resnet50' for arrays"),
    ("s.npz t.npz --out notes.txt", "notes.txt is a file"),
    ("s.npz t.npz --out notes.txt/r", "which is a file"),
    ("s.npz t.npz --out .", "holds other files"),
    ("s.npz t.npz --out . --overwrite", "holds other files"),
    ("s.npz t.npz --out /", "The output / has no name"),
    ("s.npz t.npz --out r --seed 99999999999999999999999", "--seed is 99999999999999999999999: it must be"),
    ("s.npz t.npz --out r --overwrite --resume", "--overwrite and --resume are both given"),
    ("s.npz t.npz --out r --tensorboard r", "is the output or holds it"),
    ("s.npz columns.npz --out r", "have shape .*, 0.: give at least one column"),
    ("s.npz t.npz --out r --method BA3US", "did you mean 'ba3us'"),
]


@pytest.mark.parametrize(("command", "sentence"), COMMANDS)
def test_adapt(folder, capsys, monkeypatch, command, sentence):
    before = sorted(folder.rglob("*"))
    arguments = command.split()
    if "--steps" not in arguments:
        arguments += ["--steps", "5"]
    code, out, err = run(monkeypatch, capsys, "adapt", *arguments)
    assert code == 2 and out == ""
    assert re.search(sentence, err) and err.startswith("ba3us: ")
    assert is_one_sentence(err.rstrip("\n"))
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    "command",
    [
        "adept",
        "adapt s.npz t.npz --out r --steps many",
        "adapt s.npz t.npz --oot r",
        "predict r",
        "predict r t.npz",
    ],
)
def test_usage_errors_are_exit_code_2_too(folder, capsys, monkeypatch, command):
    code, out, err = run(monkeypatch, capsys, *command.split())
    assert code == 2 and "Traceback" not in err and out == ""
    assert not (folder / "r").exists()


@pytest.mark.parametrize(
    "command",
    [
        "adapt LONG t.npz",
        "check s.npz LONG",
        "embed LONG --out r.npz",
        "report LONG",
        "bench LONG",
        "predict LONG t.npz --out r.csv",
    ],
)
def test_a_name_that_is_too_long_is_a_sentence(folder, capsys, monkeypatch, command):
    before = sorted(folder.rglob("*"))
    code, out, err = run(monkeypatch, capsys, *command.replace("LONG", 300 * "x").split())
    assert code == 2 and out == "" and 300 * "x" in err and is_one_sentence(err.rstrip("\n"))
    assert sorted(folder.rglob("*")) == before


def run(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    monkeypatch.setattr("sys.argv", ["ba3us", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err.removeprefix("Loading torch\n")  # if that took long


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        ("run/model.safetensors", "must end in .csv or .parquet"),
        ("run/presence.csv", "is a file of the run itself"),
        ("s.npz", "must end in .csv or .parquet"),
        ("/dev/null", "is a device, not a file"),
    ],
)
def test_predictions_replace_nothing_else(folder, capsys, monkeypatch, out, sentence):
    PartialAdapter("ba3us", **FAST).fit(X, Y, XT).run_.save(folder / "run")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, _, err = run(monkeypatch, capsys, "predict", "run", "t.npz", "--out", out)
    assert code == 2 and sentence in err and is_one_sentence(err.rstrip("\n"))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_device_that_is_none_is_a_sentence_of_predict_too(folder, capsys, monkeypatch):
    PartialAdapter("ba3us", **FAST).fit(X, Y, XT).run_.save(folder / "run")
    words = ("predict", "run", "t.npz", "--out", "o.csv", "--device", "tpu")
    code, _, err = run(monkeypatch, capsys, *words)
    assert code == 2 and "Unknown accelerator 'tpu'" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_output_that_is_full_is_a_sentence():
    with open("/dev/full", "w") as full:
        call = [sys.executable, "-m", "ba3us", "methods"]
        done = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2 and is_one_sentence(done.stderr.strip()), done.stderr
