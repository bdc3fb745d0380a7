"""The page of a run: what it says, that names are text, and that nothing comes from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from report_toys import NASTY, PATHS, Taken, make_run, taken, write_data

from arrays_toys import FAST, clouds, edit_results
from ba3us import PartialAdapter
from ba3us.adapt import adapt
from ba3us.data.files import read_table
from ba3us.errors import UserError
from ba3us.report import write_run_page
from ba3us.run.run import Run
from ba3us.run.spec import Spec


@pytest.fixture
def run(folder, tmp_path):
    """A copy of the run that may be changed."""
    return shutil.copytree(folder / "run", tmp_path / "copy")


def page_of(run, **options) -> Taken:
    return taken(write_run_page(run, **options))


# --- one safe file ------------------------------------------------------------------------------------------


def test_names_of_classes_and_files_are_text(nasty):
    names = [row[0] for row in nasty.table("Classes by their proportion of the target")[1:]]
    assert sorted(names) == sorted(NASTY)
    assert nasty.all("b") == nasty.all("i") == nasty.all("em") == []
    programs = [attributes for attributes, _ in nasty.all("script") if "type" not in attributes]
    assert len(programs) == 1
    said = [tip for chart in nasty.tips() for tip in chart]
    assert any(name in text for text in said for name in NASTY[:1])
    assert any(PATHS.replace("{}", "3") in text for text in said)
    assert "<i>a</i>" in nasty.section("leaderboard") and "One <em>reason</em>." in nasty.texts("li")


def test_nothing_is_asked_of_another_place(nasty):
    for tag, attributes, _ in nasty.elements:
        for name, value in attributes.items():
            assert not name.startswith("on") and name != "style", f"{tag} {name}"  # the policy would block them
            if name in ("src", "href", "srcset", "action", "poster", "data"):
                assert value is not None and value.startswith(("#", "data:")), f"{tag} {name}={value}"
    style = nasty.texts("style")[0]
    assert "url(" not in style and "@import" not in style


def test_the_policy_allows_these_very_texts_and_no_network(nasty):
    (policy,) = (a["content"] for a, _ in nasty.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:" and "unsafe" not in policy
    program = next(words for attributes, words in nasty.all("script") if "type" not in attributes)
    for kind, text in (("style-src", nasty.texts("style")[0]), ("script-src", program)):
        assert rules[kind] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_everything_has_a_name_for_those_who_do_not_see_it(nasty):
    names = [a["id"] for _, a, _ in nasty.elements if "id" in a]
    assert len(names) == len(set(names))
    links = [a["href"] for a, _ in nasty.all("a")]
    assert links[0] == "#content" and {link[1:] for link in links} <= set(names)
    assert {f"#{a['id']}" for a, _ in nasty.all("section")} == set(links[1:])
    assert all(a.get("scope") for a, _ in nasty.all("th"))
    assert len(nasty.all("caption")) == len(nasty.all("table")) > 4
    charts = nasty.all("figure", "chart")
    assert len(charts) == len(nasty.all("figcaption")) == len(nasty.all("p", "summary")) > 5
    for attributes, _ in nasty.all("div", "plot"):
        assert attributes["tabindex"] == "0" and len(attributes["aria-label"]) > 20
    assert all(a.get("aria-hidden") == "true" or a.get("aria-label") for a, _ in nasty.all("svg"))


def test_a_page_is_the_same_when_it_is_made_again(run):
    first, again = (write_run_page(run, out=run / f"{name}.html").read_bytes() for name in "ab")
    assert first == again


# --- what it says -------------------------------------------------------------------------------------------


def test_without_a_verdict_it_says_that_nothing_was_compared(folder):
    shutil.copytree(folder / "run", folder / "silent")
    edit_results(folder / "silent", verdict=None)
    page = page_of(folder / "silent", out=folder / "plain.html")
    assert "not known" in page.texts("p", "answer")[0]
    assert "not compared with source-only" in page.texts("p", "reason")[0]
    assert not any(a["id"] in ("accuracy", "leaderboard") for a, _ in page.all("section"))
    assert "ccuracy" not in page.section("training")


@pytest.mark.parametrize(
    ("word", "tone", "words"),
    [
        ("likely helped", "good", "Adapting likely helped."),
        ("no evidence", "unknown", "no evidence that adapting helped"),
        ("likely harmed", "bad", "Adapting likely did harm."),
    ],
)
def test_a_verdict_is_in_words_first(run, word, tone, words):
    edit_results(
        run,
        verdict={
            "outcome": word,
            "model_used": "source-only",
            "reasons": ["Because."],
            "figures": {"a_b": 0.5},
        },
    )
    page = page_of(run)
    (attributes, text), *others = page.all("div", "verdict")
    assert not others and tone in attributes["class"].split() and words in text
    assert "source-only's" in text and "Because." in text and "a b" in text and "0.5" in text
    assert page.text.index('class="verdict') < page.text.index("<section")


def test_shares_are_those_of_the_file_with_their_intervals(run):
    table = pd.read_csv(run / "presence.csv").sort_values("proportion", ascending=False)
    table.assign(low=table["proportion"] / 2, high=table["proportion"] + 0.1).to_csv(
        run / "presence.csv", index=False
    )
    page = page_of(run)
    head, *rows = page.table("Classes by their proportion of the target")
    assert head == ["class", "in the target?", "", "proportion", "interval", "mean probability"]
    for row, share in zip(rows, table["proportion"]):
        assert row[3] == f"{100 * share:.1f} %"
        assert row[4] == f"{100 * share / 2:.1f} % … {100 * share + 10:.1f} %"
    assert len(page.all("line", "interval")) == 3 * len(rows)
    signs = {"present": "✓", "absent": "–", "uncertain": "?"}
    assert [row[1] for row in rows] == [f"{signs[word]} {word}" for word in table["present"]]


def test_classes_that_can_not_be_told_are_named(nasty):
    assert "? uncertain" in {row[1] for row in nasty.table("Classes by their proportion of the target")}
    assert re.search(r"\d are uncertain: ", nasty.section("classes"))


def test_labels_give_accuracy_recall_and_mistakes(folder, nasty):
    run, true = Run.load(folder / "full"), np.load(folder / "t.npz")["labels"]
    # the run numbers its classes in their own order
    true = np.array([run.model.blueprint.classes.index(NASTY[label]) for label in true])
    right = run.best.predictions == true
    assert f"{100 * right.mean():.1f} % ({right.sum()} of {len(right)})" in nasty.texts("dd")[0].replace(
        "\xa0", " "
    )
    rows = {row[0]: row for row in nasty.table("Recall of each class")[1:]}
    assert rows.keys() == set(NASTY[:2])  # the classes the target holds
    for name, row in rows.items():
        own = right[true == run.model.blueprint.classes.index(name)]
        assert row[1] == str(len(own)) and row[3] == f"{100 * own.mean():.1f} %"
    (matrix,) = (chart for chart in nasty.tips() if "predicted as" in chart[0] and " samples (" in chart[0])
    assert sum(int(re.search(r": (\d+) of", text)[1]) for text in matrix) == len(true)
    curve = [text for text in (tip for chart in nasty.tips() for tip in chart) if text.startswith("accuracy")]
    assert len(curve) == len(run.evaluations)


def test_an_automatic_run_shows_what_it_compared_and_not_a_course_of_it(folder, tmp_path):
    spec = Spec(
        source=str(folder / "s.npz"),
        target=str(folder / "t.npz"),
        method="auto",
        method_params={"steps": 60},
        n_threads=1,
    )
    adapt(spec, tmp_path / "auto")
    page, run = page_of(tmp_path / "auto", labels=folder / "t.npz"), Run.load(tmp_path / "auto")
    phases = [look.phase for look in run.evaluations]
    true = np.load(folder / "t.npz")["labels"]
    true = np.array([run.model.blueprint.classes.index(NASTY[label]) for label in true])
    rows = page.table("Accuracy by the labels that were given")[1:]
    wanted = [f"{100 * np.mean(look.predictions == true):.1f} %" for look in run.evaluations]
    assert [(row[0], row[1]) for row in rows] == list(zip(phases, wanted))
    head, first, *_ = page.table("Class proportions of the candidates")
    weights = run.evaluations[run.best_index].mean_probabilities
    assert head == ["class", *phases] and first[1 + run.best_index] == f"{100 * weights.max():.1f} %"
    assert "Class proportions" not in page.texts("figcaption") and "Accuracy" not in page.texts("figcaption")
    kept = run.history.loc[run.history["selected"].eq(True), "step"].iloc[0]
    assert f"after {kept} steps" in page.section("training")
    table, lines = (
        page.table("Samples above the threshold of each error level"),
        read_table(tmp_path / "auto/predictions.csv"),
    )
    sure = np.array([float(line["confidence"]) for line in lines])
    for level, row in zip((0.01, 0.02, 0.05, 0.1, 0.2), table[1:], strict=True):
        there = sure >= run.calibration.threshold(level) - 1e-6
        wrong = (run.best.predictions != true)[there]
        said = f"{100 * wrong.mean():.1f} %" if there.any() else "–"
        assert row[0] == f"{100 * level:.0f} %" and row[2:] == [f"{100 * there.mean():.1f} %", said]
    assert [a["id"] for a, _ in page.all("section")][:3] == ["confidence", "classes", "leaderboard"]
    assert "At an error level of 5 %" in page.texts("p", "aside")[0]


@pytest.mark.parametrize(("file", "text"), [("presence.csv", "class\n"), ("history.csv", "phase,step\n")])
def test_a_file_that_does_not_fit_is_a_sentence(run, file, text):
    (run / file).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="is not whole"):
        write_run_page(run)


def test_a_wrong_number_of_labels_is_a_sentence_and_no_page(run):
    np.save(run / "few.npy", np.array([NASTY[0]] * 3))
    with pytest.raises(UserError, match="has 3 labels, but the target has 40 samples"):
        write_run_page(run, labels=run / "few.npy")
    assert not (run / "report.html").exists()


def test_class_weights_are_those_of_the_evaluations(folder, nasty):
    run = Run.load(folder / "full")
    weights = np.stack([e.mean_probabilities for e in run.evaluations])
    first = run.model.blueprint.classes[int(weights[run.best_index].argmax())]
    texts = [tip for chart in nasty.tips() for tip in chart]
    value = f"{weights[run.best_index].max():.1%}"
    assert f"{first}\n{value} after {run.best.step:,} steps" in texts


def test_the_kept_weights_are_those_of_the_selected_evaluation(run):
    looks, chosen = Run.load(run).evaluations, Run.load(run).about["selected"]
    assert chosen["evaluation"] != 0
    edit_results(run, selected=chosen | {"evaluation": 0})
    page = page_of(run)
    assert f"selected weights are those after {looks[0].step} steps" in page.section("training")
    assert page.table("Numbers of every evaluation")[1][0] == f"{looks[0].step} (selected)"


def test_phases_follow_each_other(folder, tmp_path):
    run = make_run(folder, str(tmp_path / "phases"), warmup_steps=10)
    page, kept = page_of(run), Run.load(run)
    words = page.texts("text")
    assert {e.phase for e in kept.evaluations} == {"warmup", "adapt"} <= set(words)
    steps = [int(re.search(r"after (\d+) steps", tip)[1]) for tip in page.tips()[0]]
    assert max(steps) == 30 == kept.about["steps"]


def test_a_leaderboard_shows_which_run_was_chosen(nasty):
    assert nasty.table("Candidates")[1:] == [
        ["<i>a</i>", "0.1235", ""],
        ["b", "1", "✓ chosen"],
    ]
    assert len(nasty.all("tr", "marked")) >= 1


def test_the_run_itself_is_told(run):
    edit_results(run, notes=["A note of the run."], command="ba3us adapt a b")
    (run / "skipped.csv").write_text("domain,path,reason\ntarget,<x>.jpg,damaged\n", encoding="utf-8")
    page = page_of(run)
    said = page.section("run")
    assert "A note of the run." in said and "ba3us adapt a b" in said and "torch" in said
    assert page.table("Files that were left out")[1:] == [["<x>.jpg", "target", "damaged"]]
    assert any(text.startswith("format: ba3us spec 1") for text in page.texts("code"))


# --- the features -------------------------------------------------------------------------------------------


def test_every_row_of_both_domains_is_drawn_with_what_is_known_of_it(nasty):
    clouds_ = [chart for chart in nasty.tips() if any(tip.startswith("source, ") for tip in chart)]
    assert len(clouds_) == 2  # PCA and t-SNE
    for chart in clouds_:
        assert sum(text.startswith("source, row ") for text in chart) == 80
        target = [text for text in chart if text.startswith("target, ")]
        assert len(target) == 40 and all("predicted as" in text and "labelled" in text for text in target)
    assert [a["value"] for a, _ in nasty.all("input")] == ["classes", "domains"]


@pytest.mark.parametrize("change", ["gone", "longer", "moved"])
def test_data_that_is_no_longer_there_leaves_only_that_part_out(folder, tmp_path, change):
    write_data(tmp_path)
    run = make_run(tmp_path)
    if change == "gone":
        (tmp_path / "s.npz").unlink()
    elif change == "longer":
        x = np.load(tmp_path / "t.npz")["features"]
        np.savez(tmp_path / "t.npz", features=np.concatenate([x, x]))
    else:
        (tmp_path / "s.npz").rename(tmp_path / "t.npz")
    page = page_of(run)
    assert "can't be opened again" in page.section("features") and "t-SNE" not in page.section("features")
    assert len(page.tips()) > 4  # all other charts


def test_a_run_on_arrays_says_that_it_has_no_files(tmp_path):
    x, y, xt, _ = clouds()
    PartialAdapter("ba3us", **FAST).fit(x, y, xt).run_.save(tmp_path / "run")
    page = page_of(tmp_path / "run")
    assert "given arrays" in page.section("features") and page.texts("h1") == ["arrays → arrays"]
    assert "--config" not in page.section("run")  # nothing to repeat it from


def test_many_classes_are_folded_and_summed(tmp_path):
    g, names = np.random.default_rng(0), [f"class {i}" for i in range(60)]
    x, y = g.standard_normal((180, 6)).astype(np.float32), np.arange(180) % 60
    np.savez(tmp_path / "s.npz", features=x, labels=y, class_names=names)
    np.savez(tmp_path / "t.npz", features=x[:90])
    run = make_run(tmp_path)
    page = page_of(run)
    assert len(page.table("Classes by their proportion of the target")) == 61
    assert page.texts("button", "unfold")[0] == "Show 35 more rows"
    assert "52 others, sum" in page.texts("bdi")
    assert "other classes" in page.texts("bdi")


def test_the_page_goes_where_it_is_told(run, tmp_path):
    assert write_run_page(run) == run / "report.html"
    for bad in (tmp_path / "page.txt", run / "spec.yaml"):
        with pytest.raises(UserError, match=r"must end in \.html"):
            write_run_page(run, out=bad)
    with pytest.raises(UserError, match="no run"):
        write_run_page(tmp_path)


def test_bytes_that_are_no_text_are_shown_escaped(run):
    lines = (run / "predictions.csv").read_bytes().replace(b"/3.jpg", b"/\xff.jpg")
    (run / "predictions.csv").write_bytes(lines)
    (run / "skipped.csv").write_bytes(b"domain,path,reason\ntarget,caf\xe9.jpg,damaged\n")
    assert page_of(run).table("Files that were left out")[1][0] == "caf\\udce9.jpg"


# --- colours ------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_stand_out(nasty, theme):
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", nasty.texts("style")[0])
    colours = {name: both[theme] for name, *both in pairs}
    for name in ("ink", "faint", "link", "focus"):
        assert contrast(colours[name], colours["paper"]) >= 4.5, name
    for name in (*(f"c{i}" for i in range(8)), "cx", "source", "target"):
        assert contrast(colours[name], colours["paper"]) >= 3, name
    for name in ("good", "bad", "unknown"):
        assert contrast(colours[name], colours[f"{name}-paper"]) >= 4.5, name
        assert contrast(colours["ink"], colours[f"{name}-paper"]) >= 4.5, name
