"""Which pictures are taken, where each result goes, and what is refused before any work."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from dstl_cli.errors import DstlError, FileProblem, UsageProblem
from dstl_cli.picture.inputs import Input, Job, Selection, find_inputs, plan_jobs, prepare_folders, split_done


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(*names: str) -> None:
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def find(*arguments: str, recursive: bool = False, made_suffix: str = "_denoised") -> Selection:
    return find_inputs(arguments, recursive=recursive, made_suffix=made_suffix)


def names(found: Selection) -> list[str]:
    return [str(item.path) for item in found.inputs]


def plan(*arguments: str, output: str | None = None, recursive: bool = False) -> list[str]:
    jobs = plan_jobs(find(*arguments, recursive=recursive), output, suffix="_denoised")
    return [job.output_name for job in jobs]


# --- which pictures -----------------------------------------------------------------------------------


def test_files_are_taken_as_they_are_named(folder: Path) -> None:
    touch("a.png", "notes.txt")
    found = find("a.png", "notes.txt", "missing.tif")
    assert names(found) == ["a.png", "notes.txt", "missing.tif"]  # what is wrong with them is said one by one later
    assert (found.skipped, found.problems, found.several) == (0, (), True)
    assert not find("a.png").several


def test_a_folder_gives_its_pictures_in_order_and_counts_the_rest(folder: Path) -> None:
    touch("in/b.PNG", "in/a.tiff", "in/c.jpeg", "in/notes.txt", "in/x.gif", "in/y.psd", "in/none", "in/sub/d.png")
    found = find("in")
    assert names(found) == ["in/a.tiff", "in/b.PNG", "in/c.jpeg", "in/x.gif"]
    assert list(map(str, found.others)) == ["in/none", "in/notes.txt", "in/y.psd"]
    assert found.skipped == 3
    assert found.several


def test_results_of_former_runs_are_skipped_and_counted(folder: Path) -> None:
    touch("in/a.png", "in/a_denoised.png", "in/b-clean.png")
    found = find("in")
    assert (names(found), found.skipped) == (["in/a.png", "in/b-clean.png"], 1)
    found = find("in", made_suffix="-clean")
    assert (names(found), found.skipped) == (["in/a.png", "in/a_denoised.png"], 1)
    assert names(find("in/a_denoised.png")) == ["in/a_denoised.png"]  # named on purpose


def test_hidden_files_are_left_alone(folder: Path) -> None:
    touch("in/a.png", "in/.a.png", "in/.a.png.17-0123456789abcdef.dstl-tmp")
    assert names(find("in")) == ["in/a.png"]


def test_sub_folders_only_when_asked(folder: Path) -> None:
    touch("in/z.png", "in/b/y.png", "in/a/deep/x.png", "in/a/notes.txt")
    assert names(find("in")) == ["in/z.png"]
    found = find("in", recursive=True)
    assert sorted(names(found)) == ["in/a/deep/x.png", "in/b/y.png", "in/z.png"]
    assert sorted(str(item.relative) for item in found.inputs) == ["a/deep/x.png", "b/y.png", "z.png"]
    assert found.skipped == 1
    assert names(found) == names(find("in", recursive=True))


def test_links_to_folders_are_not_followed(folder: Path) -> None:
    touch("in/a.png")
    Path("in/loop").symlink_to(folder / "in")
    Path("in/self.png").symlink_to("self.png")
    found = find("in", recursive=True)
    assert names(found) == ["in/a.png", "in/self.png"]


def test_patterns_that_the_shell_left_alone(folder: Path) -> None:
    touch("b1.png", "a1.png", "c.png", "sub/d1.png", "dir1.png/e1.png")
    found = find("?1.png")
    assert (names(found), found.several) == (["a1.png", "b1.png"], True)
    assert names(find("*1.png")) == ["a1.png", "b1.png"]  # files only
    assert sorted(names(find("**/*1.png", recursive=True))) == ["a1.png", "b1.png", "dir1.png/e1.png", "sub/d1.png"]
    assert names(find("[ab]1.png")) == ["a1.png", "b1.png"]


def test_a_pattern_without_a_match_is_a_problem(folder: Path) -> None:
    found = find("*.png")
    assert found.inputs == ()
    [(name, sentence)] = found.problems
    assert name == "*.png"
    assert "*.png" in sentence


def test_names_that_look_like_patterns(folder: Path) -> None:
    touch("a[1].png", "a1.png")
    assert names(find("a[1].png")) == ["a[1].png"]


def test_a_picture_named_twice_is_taken_once(folder: Path) -> None:
    touch("in/a.png", "in/b.png")
    found = find("in/a.png", "in", "in/../in/b.png", str(folder / "in" / "a.png"))
    assert sorted(os.path.abspath(name) for name in names(found)) == [
        str(folder / "in" / "a.png"),
        str(folder / "in" / "b.png"),
    ]


def test_standard_input(folder: Path) -> None:
    found = find("-", "-")
    assert [item.path for item in found.inputs] == [None]
    assert found.inputs[0].name == "standard input"


def test_an_unreadable_folder_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch("in/a.png", "in/locked/b.png")
    real = os.scandir

    def scandir(path: str) -> object:
        if os.fspath(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = find("in", recursive=True)
    assert names(found) == ["in/a.png"]
    [(name, sentence)] = found.problems
    assert name == "in/locked"
    assert "permissions" in sentence


def test_names_are_shown_on_one_line() -> None:
    assert "\n" not in Input(Path("two\nlines.png"), Path("x")).name
    job = Job(Input(Path("a.png"), Path("a.png")), Path("two\nlines\udcff.png"))
    assert job.output_name.isprintable()


# --- where the results go -----------------------------------------------------------------------------


def test_beside_the_input_by_default(folder: Path) -> None:
    touch("in/a.png", "in/sub/b.c.tiff")
    assert plan("in/a.png") == ["in/a_denoised.png"]
    assert plan("in", recursive=True) == ["in/a_denoised.png", "in/sub/b.c_denoised.tiff"]
    assert plan("-") == ["-"]


def test_into_a_file_or_a_folder(folder: Path) -> None:
    touch("in/a.png", "in/sub/b.png", "there/x")
    assert plan("in/a.png", output="x.tif") == ["x.tif"]
    assert plan("in/a.png", output="there") == ["there/a.png"]
    assert plan("in/a.png", output="new/") == ["new/a.png"]
    assert plan("in/a.png", output="new") == ["new"]  # one picture, no folder of that name: a file
    assert plan("in", output="new") == ["new/a.png"]
    assert plan("in", output="new.v2") == ["new.v2/a.png"]
    assert plan("in", output="new", recursive=True) == ["new/a.png", "new/sub/b.png"]
    assert plan("in/a.png", "in/sub/b.png", output="new") == ["new/a.png", "new/b.png"]
    assert plan("in/*.png", output="new") == ["new/a.png"]
    assert plan("in/a.png", output="-") == ["-"]


def refused(arguments: Iterable[str], *words: str, output: str | None = None, recursive: bool = False) -> None:
    with pytest.raises(UsageProblem) as caught:
        plan(*arguments, output=output, recursive=recursive)
    for word in words:
        assert word in str(caught.value)


def test_several_pictures_do_not_fit_into_one_place(folder: Path) -> None:
    touch("a.png", "b.png")
    refused(["a.png", "b.png"], "x.png", output="x.png")
    refused(["*.png"], "x.PNG", output="x.PNG")
    refused(["a.png", "b.png"], "standard output", output="-")


def test_two_inputs_never_share_an_output(folder: Path) -> None:
    touch("x/a.png", "y/a.png", "in/a.png")
    refused(["x/a.png", "y/a.png"], "x/a.png", "y/a.png", "out/a.png", output="out")
    refused(["x", "y"], "out/a.png", output="out")
    Path("link").symlink_to("x")
    refused(["x/a.png", "link/a.png"], "a_denoised.png")


def test_an_input_is_never_an_output(folder: Path) -> None:
    touch("in/a.png", "in/b.png", "in/b_denoised.png")
    for output in ("in/a.png", "in", "in/../in/a.png", "./in/"):
        refused(["in/a.png"], "input", output=output)
    refused(["in"], "input", output="in")
    refused(["in/b.png", "in/b_denoised.png"], "in/b_denoised.png")
    Path("symbolic.png").symlink_to("in/a.png")
    os.link("in/a.png", "hard.png")
    for output in ("symbolic.png", "hard.png"):
        refused(["in/a.png"], "input", output=output)
        refused([output], "input", output="in/a.png")


# --- what is there already ----------------------------------------------------------------------------


def jobs_of(*outputs: str) -> list[Job]:
    return [Job(Input(Path(f"{k}.png"), Path(f"{k}.png")), Path(name)) for k, name in enumerate(outputs)]


def test_existing_outputs_are_refused_resumed_or_overwritten(folder: Path) -> None:
    for name in ("x.png", "z.png"):
        Path(name).write_text("bytes")
    jobs = jobs_of("x.png", "y.png", "z.png")
    with pytest.raises(UsageProblem, match=r"x\.png \(and 1 more\) exists.*--force.*--resume"):
        split_done(jobs, resume=False, force=False)
    assert split_done(jobs, resume=True, force=False) == ([jobs[1]], [jobs[0], jobs[2]])
    assert split_done(jobs, resume=False, force=True) == (jobs, [])
    assert split_done([jobs[1]], resume=False, force=False) == ([jobs[1]], [])
    stdout = Job(Input(None, Path("stdin")), None)
    assert split_done([stdout], resume=True, force=False) == ([stdout], [])


def test_a_broken_link_is_something_that_exists(folder: Path) -> None:
    Path("x.png").symlink_to("nowhere.png")
    with pytest.raises(UsageProblem, match=r"x\.png exists"):
        split_done(jobs_of("x.png"), resume=False, force=False)


def test_folders_are_made_and_tidied(folder: Path) -> None:
    stale = Path("out/.a.png.999999999-0123456789abcdef.dstl-tmp")
    touch(str(stale), "out/keep.png")
    prepare_folders(jobs_of("out/a.png", "out/deep/b.png"))
    assert Path("out/deep").is_dir()
    assert not stale.exists()
    assert Path("out/keep.png").exists()


def test_a_folder_that_cannot_be_made(folder: Path) -> None:
    touch("wall")
    with pytest.raises(FileProblem, match="wall") as caught:
        prepare_folders(jobs_of("wall/a.png"))
    assert isinstance(caught.value, DstlError)
    with pytest.raises(FileProblem, match="wall"):
        prepare_folders(jobs_of("wall/deep/a.png"))
