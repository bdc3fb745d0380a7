"""A coverage-guided fuzzer over the parsers of list files, specs and protocols.

    python -m tests.torture.fuzz_parsers list|spec|protocol [--seconds 600]

Whatever the bytes, a parser answers with what it read or with one sentence. Anything else ends the search, and
libFuzzer writes the bytes to a file ``crash-…`` in the current folder. Needs the package atheris.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["ba3us.data", "ba3us.run.spec", "ba3us.bench.protocol", "yaml"]):
    import yaml  # noqa: F401

    from ba3us.bench.protocol import read_protocol
    from ba3us.data.images import read_class_names, read_images
    from ba3us.errors import UserError
    from ba3us.run.spec import Spec

_LIST = [b"a/0.png 0\nb/1.png 1\n", b"a/0.png\n", b"\xef\xbb\xbfa/0.png\t12\r\n", b"../x 1\n/abs 0\n"]
_SPEC = [
    b"format: ba3us spec 1\nsource: s.npz\ntarget: t\nmethod: ba3us\noptions: {steps: 2, beta: 1.5}\nseed: 3\n",
    b"protocol: office31\ntask: A->W\nscale: true\nprecision: bfloat16\ncache_gb: 0.5\ndevices: auto\n",
    b"a: &a [*a]\n<<: {method: auto}\n? [1]\n: 2\n",
]
_PROTOCOL = [
    b"domains: {P: one.npz, Q: [two.npz, 2]}\ntasks: [P->Q]\ntarget: {classes: [ant]}\noptions: {steps: 4}\n",
    b"title: t\ndomains: {A: a, B: b}\ntasks: all\ntarget: [{count: 3, draw: 1, variants: 2}, {first: 2}]\n"
    b"published: office31\nmethod_options: {ba3us: {beta: 1}}\nexpected: {A: 3, B: {x: 1}}\n"
    b"rename: {A: {a: b}}\n",
]


def read_list(path: Path) -> None:
    """As labelled images, as a target, and as names of classes."""
    for read in (read_images, lambda p: read_images(p, labelled=False), read_class_names):
        one_sentence(lambda read=read: read(path))  # type: ignore[misc]


def read_spec(path: Path) -> None:
    """And what follows from it."""
    one_sentence(lambda: (Spec.read(path).method_options(), Spec.read(path).kind))


def read_protocol_file(path: Path) -> None:
    """And which classes its targets keep."""
    one_sentence(lambda: [subset.pick(["ant", "bee"]) for subset in read_protocol(path).targets])


def one_sentence(attempt: Callable[[], object]) -> None:
    """The only exception is a sentence."""
    try:
        attempt()
    except UserError as error:
        if "\n" in str(error):
            raise AssertionError("several lines") from error


PARSERS = {"list": (read_list, _LIST), "spec": (read_spec, _SPEC), "protocol": (read_protocol_file, _PROTOCOL)}


def main() -> None:
    """Search until the time is over or something is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parser", choices=PARSERS)
    parser.add_argument("--seconds", type=int, default=600)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()  # libFuzzer ends its process
        if child == 0:
            search(Path(folder), arguments.parser, arguments.seconds)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.exit(code)


def search(folder: Path, parser: str, seconds: int) -> None:
    """Feed a parser; does not return."""
    read, seeds = PARSERS[parser]
    (folder / "a").mkdir()
    (folder / "a" / "0.png").touch()
    (folder / "corpus").mkdir()
    for number, seed in enumerate(seeds):
        (folder / "corpus" / str(number)).write_bytes(seed)
    path = folder / ("list.txt" if parser == "list" else "file.yaml")

    def test(content: bytes) -> None:
        path.write_bytes(content)
        read(path)

    limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *limits, "-max_len=2000", str(folder / "corpus")], test)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
