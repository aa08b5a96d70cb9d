"""Pictures at addresses that fsspec opens, in and out, without a network: in memory and in archives."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from running import refused, run, scene

from dstl_cli.base import addresses
from dstl_cli.base.addresses import Address
from dstl_cli.run.journal import last_words

fsspec = pytest.importorskip("fsspec")
FAST = ("--method", "dct", "--sigma", "20", "--patch-size", "6")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Three pictures and a text, in `in` and below memory://in, and the results of one machine in `alone`."""
    (tmp_path / "in" / "sub").mkdir(parents=True)
    for seed, name in enumerate(("a.png", "b.png", "sub/c.png")):
        Image.fromarray(scene((24, 24), seed=seed)).save(tmp_path / "in" / name)
    (tmp_path / "in" / "notes.txt").write_text("no picture")
    assert run("denoise", tmp_path / "in", "-o", tmp_path / "alone", *FAST, "-r", "-q").code == 0
    for path in (tmp_path / "in").rglob("*.*"):
        Address("memory://", f"in/{path.relative_to(tmp_path / 'in')}").put(path.read_bytes(), overwrite=False)
    yield tmp_path
    fsspec.filesystem("memory").store.clear()


def objects(name: str) -> dict[str, bytes]:
    place = Address("memory://", name)
    return {below: (place / below).read() for below in place.files(recursive=True)}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")}


def test_a_folder_of_objects_gives_the_bytes_of_files(folder: Path) -> None:
    asked = ("denoise", "memory://in/", "-o", "memory://out", *FAST, "-r", "--shard", "1/1")
    done = run(*asked, "--residual", "memory://left", "--json")
    assert (done.code, done.stderr) == (0, "")
    assert done.report["summary"] == {"done": 3, "unchanged": 0, "failed": 0, "resumed": 0, "skipped": 1}
    assert objects("out") == files(folder / "alone")
    assert sorted(objects("left")) == ["a_residual.png", "b_residual.png", "sub/c_residual.png"]
    assert done.report["files"][0]["output"] == "memory://out/a.png"
    (folder / "journal").write_bytes(Address("memory://", "out.1-of-1.journal.jsonl").read())
    assert [entry["output"] for entry in last_words(folder / "journal")][2] == "memory://out/sub/c.png"


def test_results_that_are_there_are_kept_skipped_or_replaced(folder: Path) -> None:
    whole, asked = files(folder / "alone"), ("denoise", "memory://in/", "-o", "memory://out", *FAST, "-r")
    Address("memory://", "out/b.png").put(b"precious", overwrite=False)
    refused(run(*asked, "-q"), 2, "memory://out/b.png", "--force", "--resume")
    assert objects("out") == {"b.png": b"precious"}
    again = run(*asked, "--resume", "--json").report["summary"]
    assert (again["done"], again["resumed"]) == (2, 1)
    assert objects("out") == {**whole, "b.png": b"precious"}
    assert run(*asked, "--force", "-q").code == 0
    assert objects("out") == whole


def test_beside_the_input_and_one_picture_to_a_file(folder: Path) -> None:
    whole = files(folder / "alone")
    assert run("denoise", "memory://in/a.png", *FAST, "-q").code == 0
    assert Address("memory://", "in/a_denoised.png").read() == whole["a.png"]
    planned = run("denoise", "memory://in/", *FAST, "--resume", "--dry-run").text.splitlines()
    assert planned[-1] == "1 to denoise, 1 done before, 2 other files skipped."  # one of them is our own result
    assert run("denoise", "memory://in/b.png", "-o", folder / "b.png", *FAST, "-q").code == 0
    assert (folder / "b.png").read_bytes() == whole["b.png"]
    clean = run("evaluate", "memory://in/", "--sigma", "20", "--method", "dct", "--json").report
    assert {row["image"] for row in clean["rows"]} == {"a.png", "b.png"}


def test_archives_are_read_and_not_written(folder: Path) -> None:
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        archive.write(folder / "in" / "a.png", "sub/a.png")
    name = f"zip://sub/a.png::{folder / 'all.zip'}"
    assert run("denoise", name, "-o", folder / "a.png", *FAST, "-q").code == 0
    assert (folder / "a.png").read_bytes() == files(folder / "alone")["a.png"]
    refused(run("denoise", name, *FAST, "-q"), 2, "in one step")
    refused(run("denoise", name, "-o", "https://host/a.png", *FAST, "-q"), 2, "https://host/a.png", "in one step")


def test_names_in_archives_never_lead_out_of_the_output(folder: Path) -> None:
    picture = (folder / "in" / "a.png").read_bytes()
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        for name in ("../out1.png", "sub/../../out2.png", "sub/a.png"):
            archive.writestr(name, picture)
    before = set(folder.rglob("*"))
    done = run("denoise", f"zip://::{folder / 'all.zip'}", "-o", folder / "deep" / "er", *FAST, "-r", "-q")
    assert done.code == 1
    assert len(done.sentences) == 2
    assert all("has a name that leads out of its folder; rename it." in sentence for sentence in done.sentences)
    assert {path.name for path in set(folder.rglob("*")) - before} == {"deep", "er", "sub", "a.png"}
    assert files(folder / "deep" / "er").keys() == {"sub/a.png"}


def test_a_file_in_an_archive_is_not_unpacked_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "MOST_UNPACKED", 10_000)
    with zipfile.ZipFile(folder / "all.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(folder / "in" / "a.png", "a.png")
        archive.writestr("b.png", (folder / "in" / "a.png").read_bytes() + bytes(10_000))
    done = run("denoise", f"zip://::{folder / 'all.zip'}", "-o", folder / "out", *FAST, "-q")
    refused(done, 1, "b.png", "has more than 10000 bytes", "unpack")
    assert files(folder / "out").keys() == {"a.png"}


def test_what_cannot_be_is_one_sentence(folder: Path) -> None:
    refused(run("denoise", "memory://in/none.png", "-o", folder / "x.png", *FAST, "-q"), 1, "does not exist")
    refused(run("denoise", "memory://in/a.png", "-o", "memory://in/a.png", *FAST, "--force"), 2, "is an input")
    refused(run("denoise", "memory://in", "-o", "memory://x/one.png", *FAST), 2, "--output")
    refused(run("train", "memory://in", "-o", folder / "t.npz"), 2, "memory://in")
    (folder / "broken.png").write_text("no picture")
    Address("memory://", "in/broken.png").put(b"no picture", overwrite=False)
    done = run("denoise", "memory://in", "-o", "memory://o2", *FAST, "-q")
    assert (done.code, len(done.sentences)) == (1, 1)
    assert "memory://in/broken.png" in done.sentences[0]
    assert sorted(objects("o2")) == ["a.png", "b.png"]


@pytest.mark.parametrize(
    "asked",
    [
        ("inspect", "s3://b/x.png"),
        ("denoise", "s3://b/x.png", "--preview", "sheet.png"),
        ("denoise", "missing.png", "--preview", "s3://b/x.png"),
        ("denoise", "missing.png", "--transform", "s3://b/x.png"),
        ("denoise", "missing.png", "--noise", "s3://b/x.png?sig=secret"),
        ("evaluate", "s3://b/x.png", "missing.png"),
        ("evaluate", "missing.png", "s3://b/x.png"),
        ("evaluate", "missing.png", "--noisy", "s3://b/x.png"),
        ("evaluate", "missing.png", "--sigma", "20", "--transform", "s3://b/x.png"),
    ],
)
def test_addresses_are_refused_where_only_files_are_taken(asked: tuple[str, ...]) -> None:
    refused(run(*asked), 2, "takes files of this machine, not s3://b/x.png; copy it first.")
