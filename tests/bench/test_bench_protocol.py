"""Protocols: what is shipped, and what a wrong file is told."""

from __future__ import annotations

import pytest
from bench_toys import write_protocol

from ba3us.bench import protocol
from ba3us.bench.protocol import Subset, read_protocol, shipped
from ba3us.errors import UserError

COUNTS = {  # tasks and, where the protocol names them, source and target classes
    "caltech107-office10": (3, None, None),
    "caltech107-office10-resnet50": (3, None, None),
    "digits": (2, None, 5),
    "imagenet-caltech": (2, None, 84),
    "office-caltech-10-10": (12, None, None),
    "office-caltech-10-5": (12, None, 5),
    "office-caltech-10-5-resnet50": (12, 10, 5),
    "office-home": (12, 65, 25),
    "office-home-closed": (12, 65, None),
    "office31": (6, 31, 10),
    "office31-vgg16": (6, 31, 10),
    "pacs-7-2": (6, None, 2),
    "pacs-7-4": (12, None, 4),
    "pacs-7-7": (4, None, None),
    "pacs-targets": (12, None, 4),
}


@pytest.mark.parametrize("name", shipped())
def test_shipped_protocols_read_and_count_as_published(name):
    protocol = read_protocol(name)
    rule = protocol.targets[0]
    kept = rule.first or (len(rule.classes) if rule.classes else None)
    classes = None if protocol.classes is None else len(protocol.classes)
    assert (len(protocol.tasks), classes, kept) == COUNTS[name]


def test_numbers_of_images_are_the_papers():
    def total(name: str, domain: str, classes: object = None) -> int:
        counts = read_protocol(name).expected[domain]
        return counts if isinstance(counts, int) else sum(counts[c] for c in classes or counts)

    ten = read_protocol("office31").targets[0].classes
    assert [total("office31", d) for d in "ADW"] == [2817, 498, 795]
    assert [total("office31", d, ten) for d in "ADW"] == [958, 157, 295]
    home = read_protocol("office-home")
    first = home.targets[0].pick(home.classes or ())
    assert (first or [])[-1] == "Fork"
    assert [total("office-home", d) for d in ("Ar", "Cl", "Pr", "Rw")] == [2427, 4365, 4439, 4357]
    assert [total("office-home", d, first) for d in ("Ar", "Cl", "Pr", "Rw")] == [1089, 1675, 1785, 1811]
    shared = read_protocol("imagenet-caltech").targets[0].classes
    assert (total("imagenet-caltech", "C"), total("imagenet-caltech", "C", shared)) == (29780, 9257)


def test_the_papers_numbers_come_along():
    assert protocol.paper_accuracies("office31")["ba3us", "Avg"] == 97.81
    assert protocol.paper_accuracies("office-home")["source-only", "Ar->Cl"] == 46.33
    assert protocol.paper_accuracies(None) == {}


def test_rules_pick_classes():
    shared = {"bee", "Ant", "cat", "dog"}
    assert Subset(first=2).pick(shared) == ["Ant", "bee"]
    assert Subset(classes=("dog", "bee")).pick(shared) == ["dog", "bee"]
    assert Subset().pick(shared) is None
    draws = [tuple(Subset(count=2, draw=seed).pick(shared) or ()) for seed in range(20)]
    assert draws == [tuple(Subset(count=2, draw=seed).pick(shared) or ()) for seed in range(20)]
    assert len(set(draws)) > 3 and all(len(set(draw)) == 2 for draw in draws)


def test_a_draw_makes_named_variants(tmp_path):
    rules = "target: [{name: d, count: 2, draw: 5, variants: 3}, {name: whole, all: true}]\n"
    path = write_protocol(tmp_path, "domains: {P: one.npz, Q: two.npz}\ntasks: all\n" + rules)
    read = read_protocol(path)
    assert [(s.name, s.count, s.draw) for s in read.targets] == [
        ("d 5", 2, 5),
        ("d 6", 2, 6),
        ("d 7", 2, 7),
        ("whole", None, 0),
    ]
    assert [task.name for task in read.tasks] == ["P->Q", "Q->P"]
    assert read.folder == tmp_path


GOOD = "domains: {A: a.npz, B: b.npz}\ntasks: [A->B]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "not valid YAML"),
        ("3", "the file is 3"),
        ("tasks: [A->B]", "no domains"),
        ("domains: {A: a.npz}", "no tasks"),
        ("domain: {A: a.npz}", "Unknown key 'domain': did you mean 'domains'"),
        ("domains: {A: a.npz, A: b.npz}\ntasks: [A->A]", "'A' is given twice"),
        ("domains: [a.npz]\ntasks: [A->B]", "domains is"),
        ("domains: {A: 3}\ntasks: [A->A]", "domain 'A' is 3"),
        ("domains: {A: a.npz}\ntasks: [A->B]", "domain in task 'A->B': 'B'"),
        ("domains: {A: a.npz}\ntasks: [A]", "form A->B"),
        ("domains: {A: a.npz}\ntasks: A->A", "write a list of A->B"),
        ("domains: {A: a.npz}\ntasks: [{name: A->A, from: A}]", "name, source and target"),
        ("domains: {A: a.npz, B: b.npz}\ntasks: [A->B, A -> B]", "'A->B' is given twice"),
        (GOOD + "name: 3", "name is 3"),
        (GOOD + "classes: [x, x]", "'x' is given twice in classes"),
        (GOOD + "classes: [x, 3]", "classes is 3: write text"),
        (GOOD + "classes: x", "write a list of names"),
        (GOOD + "classes: [x, y]\ntarget: {classes: [yy]}", "Unknown target class 'yy'"),
        (GOOD + "target: {first: none}", "first is 'none': write a whole number"),
        (GOOD + "target: {first: true}", "first is True"),
        (GOOD + "target: {first: 0}", "first is 0"),
        (GOOD + "target: {frist: 3}", "write first, classes, count"),
        (GOOD + "target: {first: 3, classes: [x]}", "write first, classes, count"),
        (GOOD + "target: {draw: 3}", "write first, classes, count"),
        (GOOD + "target: [{first: 2}, {first: 3}]", "'' is given twice in names of targets"),
        (GOOD + "target: []", "list of targets is empty"),
        (GOOD + "published: office32", "Unknown published 'office32': did you mean 'office31'"),
        (GOOD + "paper: office32", "Unknown paper 'office32'"),
        (GOOD + "options: {stepz: 3}", "Unknown option 'stepz': did you mean 'steps'"),
        (GOOD + "method_options: {ba3uss: {}}", "Unknown method 'ba3uss'"),
        (GOOD + "method_options: {ba3us: {betta: 1}}", "Unknown option 'betta': did you mean 'beta'"),
        (GOOD + "method_options: {ba3us: {beta: x}}", "'beta' is 'x'"),
        (GOOD + "seeds: 0", "seeds is 0"),
        (GOOD + "selection: entropy", "write a list of names"),
        (GOOD + "expected: {C: 3}", "domain in expected: 'C'"),
        (GOOD + "expected: {A: {x: -1}}", "expected of A, x is -1"),
        (GOOD + "rename: {A: {x: 3}}", "x is 3"),
    ],
)
def test_wrong_files_are_sentences(tmp_path, text, words):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"p\.yaml") as caught:
        read_protocol(path)
    assert words in str(caught.value)


def test_unknown_names_are_sentences():
    with pytest.raises(UserError, match="did you mean 'office31'"):
        read_protocol("ofice31")
    with pytest.raises(UserError, match="keep 4 classes, but source and target share 2"):
        Subset(first=4).pick({"a", "b"})
    with pytest.raises(UserError, match="No class 'c'"):
        Subset(classes=("c",)).pick({"a", "b"})
