"""Fuzz one kind with Atheris, which looks for new paths through the reader: `python -m tests.fuzz` calls this."""

import argparse
import random
import sys
from pathlib import Path

import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

with atheris.instrument_imports(include=["dstl_cli"]):
    from dstl_cli.picture.formats import FORMATS

    from . import corpus, mutate, targets

    for entry in FORMATS:
        entry.load()

HANGS = 60  # seconds


def main() -> None:
    """Fuzz until the time is over; it ends the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=list(targets.TARGETS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept", type=Path, required=True, help="folder for the corpus and for what is found")
    asked = parser.parse_args()
    known = corpus.seeds()[asked.kind]
    folder = asked.kept / f"corpus-{asked.kind}"
    folder.mkdir(exist_ok=True)
    for number, data in enumerate(known):
        (folder / f"seed-{number}").write_bytes(data)

    def changed(data: bytes, most: int, number: int) -> bytes:
        rng = random.Random(number)
        try:
            return mutate.mutant(data, known, asked.kind, rng)[:most]
        except Exception:  # it is no longer such a file, and cannot be changed within
            return mutate.mutant(rng.choice(known), known, asked.kind, rng)[:most]

    options = [f"-max_total_time={asked.seconds}", f"-seed={asked.seed + 1}", f"-timeout={HANGS}"]
    options += [f"-artifact_prefix={asked.kept}/{asked.kind}-", f"-max_len={mutate.MOST_BYTES}", "-rss_limit_mb=2048"]

    def one(data: bytes) -> None:
        targets.check(asked.kind, data)

    atheris.Setup([sys.argv[0], str(folder), *options], one, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
