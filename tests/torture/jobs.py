"""The small jobs that are tortured, and what must hold after each run of one."""

import os
from dataclasses import dataclass
from pathlib import Path

TRUSTING = "--trust-files"
DENOISE = ("denoise", "--sigma", "20", "--quality", "fast", "--jobs", "1", "-q")
TRAIN = (
    "train",
    "in/a.png",
    TRUSTING,
    "-o",
    "t.npz",
    "--patch-size",
    "4",
    "--train-patches",
    "300",
    "--iterations",
    "3",
    "-q",
)
TEMPORARY = ".dstl-tmp"


@dataclass(frozen=True)
class Job:
    """A command in a folder that has pictures in `in`, and how the same is done again after whatever went wrong.

    All but one decode their pictures themselves: to start the child process for that takes longer than the job.
    """

    name: str
    arguments: tuple[str, ...]
    again: tuple[str, ...]  # added then
    unfinished: str = ""  # what it leaves to go on from where it is stopped
    codes: tuple[int, ...] = (1,)  # with which it may fail; 2 where not one of its inputs can be read
    early: str = ""  # what it writes where it is asked to end, though it could be better


JOBS = (
    Job("file", (*DENOISE, "in/a.png", "-o", "out.png"), ("--resume",)),
    Job("folder", (*DENOISE, TRUSTING, "in", "-o", "out", "--residual", "res", "--compare", "cmp"), ("--resume",)),
    Job(
        "scratch",
        (*DENOISE, TRUSTING, "in/c.npy", "-o", "out.npy", "--max-memory", "1K", "--scratch", "."),
        ("--resume",),
    ),
    Job("train", TRAIN, ("--resume",), "t.npz.checkpoint", (1, 2), "t.npz"),
    Job(
        "evaluate",
        (
            "evaluate",
            "in/a.png",
            "--sigma",
            "20",
            "--quality",
            "fast",
            "--jobs",
            "1",
            "--csv",
            "a.csv",
            "--report",
            "r.html",
        ),
        ("--force",),
    ),
    Job("profile", ("profile", "in/a.png", TRUSTING, "-o", "camera.json", "--jobs", "1", "-q"), ("--force",)),
)


def make_pictures(folder: Path) -> None:
    """The pictures that the jobs work on: 32 x 32 pixels of different kinds, with noise."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:32, :32]
    clean = 128 + 50 * np.sin(rows / 5) * np.cos(columns / 6)
    (folder / "in").mkdir(parents=True)
    grey = np.zeros((32, 32))
    for name in ("a.png", "d.png"):
        grey = np.clip(clean + 20 * rng.standard_normal(clean.shape), 0, 255)
        Image.fromarray(grey.astype(np.uint8)).save(folder / "in" / name)
    colour = np.clip(clean[..., None] + 20 * rng.standard_normal((32, 32, 3)), 0, 255)
    Image.fromarray(colour.astype(np.uint8)).save(folder / "in" / "b.jpg", quality=95)
    np.save(folder / "in" / "c.npy", grey.astype(np.float32))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    found = {}
    for here, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(here, name), "rb") as stream:
                found[os.path.relpath(os.path.join(here, name), folder)] = stream.read()
    return found


@dataclass(frozen=True)
class End:
    """How a run ended, and the files that there are then."""

    code: int | None  # None: killed
    stderr: str
    files: dict[str, bytes]


def what_is_wrong(job: Job, end: End, expected: dict[str, bytes], inputs: dict[str, bytes], how: str) -> list[str]:
    """What does not hold that must, after a run with a fault; expected: all files after a run without one."""
    wrong = [f"input {name} changed" for name, data in inputs.items() if end.files.get(name) != data]
    made = {name: data for name, data in end.files.items() if name not in inputs}
    left = [name for name in made if name.endswith(TEMPORARY)]
    may_differ = {job.unfinished, job.early if end.code == 130 else ""}
    others = {name: data for name, data in made.items() if name not in left and name not in may_differ}
    wrong += [f"half file {name}" for name, data in others.items() if expected.get(name) != data]
    if end.code is None and how != "kill":
        wrong.append("killed")
    if left and how not in ("kill", "lasting", "unlink"):
        wrong.append(f"left {left[0]}")
    missing = set(expected) - set(end.files)
    if end.code == 0 and missing:
        wrong.append(f"exit code 0 without {sorted(missing)[0]}")
    if end.code not in (0, None, *((130,) if how == "end" else job.codes)):
        wrong.append(f"exit code {end.code}")
    lines = [line for line in end.stderr.splitlines() if line.strip()]
    odd = [line for line in lines if not (line.startswith("dstl: ") and line.endswith("."))]
    if odd or "Traceback" in end.stderr or "unforeseen" in end.stderr:
        wrong.append(f"said: {(odd or lines)[0]}")
    if end.code not in (0, None) and not lines:
        wrong.append(f"exit code {end.code} without a sentence")
    return wrong
