"""Model cards: what they say, that names are only shown, and that the code in them works."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
import yaml
from export_toys import XT, feature_run, session

from arrays_toys import NAMES, edit_results
from ba3us.data.files import new_table, read_table
from ba3us.errors import UserError
from ba3us.export import export
from ba3us.export.card import _verdict, prose, verbatim, visible

markdown = pytest.importorskip("markdown_it", reason="needs a renderer")
NASTY = [
    "a|b\n| c | d |",
    "<script>alert(1)</script>",
    "``code`` *bold* [x](javascript:y) $cost \\| ",
    ":bomb: 💣 @all\u202eabc # h",
]


def html(text):
    return markdown.MarkdownIt("commonmark").enable("table").render(text)


def code(text):
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run, its card, and the folder of both."""
    folder = tmp_path_factory.mktemp("card")
    feature_run(folder)
    export(folder / "run", folder / "model.onnx")
    return folder, (folder / "model.md").read_text(encoding="utf-8")


def change(run, verdict=None, **columns):
    """Give a run a verdict, and its presence other columns."""
    edit_results(run, **({} if verdict is None else {"verdict": verdict}))
    rows = read_table(run / "presence.csv")
    with new_table(run / "presence.csv", [*rows[0], *(c for c in columns if c not in rows[0])]) as write:
        for number, row in enumerate(rows):
            write({**row, **{name: values[number] for name, values in columns.items()}}.values())


def test_a_card_says_where_the_model_is_from(made):
    _, card = made
    for said in (
        "# `model.onnx`", "feature vectors with 4 classes", "| source | `s.npz`, 80 samples with labels |",
        "40 samples without labels |", "BA³US (ba3us): Liang et al.", "ba3us defaults with",
        "Training saw no target label", "by the rule `entropy`", "**Verdict:", "Unknown classes",
        "Another camera", "not calibrated", "float32 [n, 6]", "MIT licence", "on 8 samples of the target",
    ):  # fmt: skip
        assert said in card, said
    assert yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```", card, flags=re.M | re.S)[0])["steps"] == 30
    assert "$" not in card and str(made[0]) not in card


def test_the_classes_that_are_present_stand_in_the_card(made):
    folder, card = made
    rows = read_table(folder / "run" / "presence.csv")
    present = [row for row in rows if row["present"] == "present"]
    assert 0 < len(present) < len(rows)
    for row in rows:
        assert (f"| `{row['class']}` | present | {float(row['proportion']):.1%} |" in card) == (row in present)
    assert f"{len(rows) - len(present)} of 4 classes are absent" in card


def test_verdict_and_intervals_where_a_run_has_them(tmp_path):
    run = feature_run(tmp_path)
    reasons = ["Target entropy fell from 1.2 to 0.3.", "The class <b>ant</b> | *took* it."]
    change(
        run,
        {"outcome": "no evidence", "model_used": "source-only", "reasons": reasons, "figures": {}},
        present=["present", "uncertain", "absent", "absent"],
        proportion=["0.5", "0.25", "0.2", "0.05"],
        low=["0.4", "0.1", "0", "0"],
        high=["0.6", "0.375", "0.3", "0.1"],
    )
    export(run, tmp_path / "m.onnx")
    card = (tmp_path / "m.md").read_text(encoding="utf-8")
    assert "**Verdict: no evidence.** Model used: source-only." in card
    assert "low and high its interval" in card and "| class | present | proportion | low | high |" in card
    assert "| `ant` | present | 50.0% | 40.0% | 60.0% |\n| `bee` | uncertain | 25.0% | 10.0% | 37.5% |" in card
    shown = html(card)
    assert "<li>Target entropy fell from 1.2 to 0.3.</li>" in shown
    assert "<li>The class &lt;b&gt;ant&lt;/b&gt; | *took* it.</li>" in shown


def test_a_verdict_of_another_form_does_no_harm():
    for odd in (None, "helped", 3, []):
        assert _verdict(odd) == "Whether adapting helped was not judged: this run has no verdict."
    assert _verdict({}) == "**Verdict: unknown.**"
    assert _verdict({"outcome": "harmed", "reasons": "none"}) == "**Verdict: harmed.**"


def test_names_are_shown_and_do_nothing(tmp_path):
    run = feature_run(tmp_path, names=NASTY)
    change(run, present=["present"] * 4)
    export(run, tmp_path / "m.onnx")
    shown = html((tmp_path / "m.md").read_text(encoding="utf-8"))
    assert "<script" not in shown and "<em>bold" not in shown and 'javascript:y"' not in shown
    row = r"<tr>\n<td><code>(.*?)</code></td>\n<td>present</td>\n(?:<td>[^<]*</td>\n)+</tr>"
    cells = re.findall(row, shown)
    assert len(cells) == 4
    assert "a|b\\n| c | d |" in cells and "&lt;script&gt;alert(1)&lt;/script&gt;" in cells
    assert any(":bomb: 💣 @all\\u202eabc # h" in cell for cell in cells)
    assert any("``code`` *bold* [x](javascript:y) $cost" in cell for cell in cells)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("mug", "`mug`"),
        ("a`b", "``a`b``"),
        ("`", "`` ` ``"),
        (" x", "`  x `"),
        ("", "(no name)"),
        (" ", "(no name)"),
        (7, "`7`"),
        ("a\tb\r\n", "`a\\tb\\r\\n`"),
        ("\udcff", "`\\udcff`"),
    ],
)
def test_names_as_code(text, wanted):
    assert verbatim(text) == wanted
    wanted_inside = visible(text).strip()
    assert not wanted_inside or wanted_inside in re.sub(r"<[^>]+>", "", html(wanted))


def test_sentences_are_not_markup():
    assert html(f"- {prose('- x')}").count("<li>") == 1
    text = r"# a_b_ *c* <i>d</i> [e](f) `g` ~h~ & i@j \ "
    plain = html(f"x {prose(text)}")
    assert plain.count("<") == 2  # the paragraph's own
    assert "a_b_ *c* &lt;i&gt;d&lt;/i&gt; [e](f) `g` ~h~ &amp; i@j" in plain


def test_the_code_of_a_card_runs(made):
    folder, card = made
    (snippet,) = code(card)
    done = subprocess.run(
        [sys.executable, "-c", snippet], cwd=folder, capture_output=True, text=True, check=True
    )
    words = [line.split() for line in done.stdout.splitlines()]
    (probabilities,) = session(folder / "model.onnx").run(["probabilities"], {"features": XT})
    assert [name for name, _ in words] == NAMES[probabilities.argmax(axis=1)].tolist()
    np.testing.assert_allclose([float(p) for _, p in words], probabilities.max(axis=1), atol=1e-6)


def test_a_card_that_is_ours_is_replaced_and_another_page_is_not(made, tmp_path):
    folder, card = made
    (tmp_path / "c.md").write_text(card, encoding="utf-8")
    export(folder / "run", tmp_path / "m.onnx", card=tmp_path / "c.md")
    assert "`m.onnx`" in (tmp_path / "c.md").read_text(encoding="utf-8")
    (tmp_path / "c.md").write_text(f"mine\n{card}", encoding="utf-8")
    with pytest.raises(UserError, match="is not a model card"):
        export(folder / "run", tmp_path / "m.onnx", card=tmp_path / "c.md")
