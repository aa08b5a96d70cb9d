"""Transform files come back as they were kept; wrong, damaged and hostile ones get one sentence."""

import json
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dstl_cli.errors import FileProblem
from dstl_cli.transforms.files import LONGEST_HISTORY, TransformFile, load_transform, save_transform
from dstl_cli.transforms.transform import Iteration, Transform

SIZE = 3
COUNT = SIZE**2


def sparse_factor(seed: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    """An invertible factor with zeros in it."""
    rng = np.random.default_rng(seed)
    return np.eye(COUNT) * rng.uniform(1, 2, COUNT) + np.triu(rng.standard_normal((COUNT, COUNT)), 1) * 0.1 * (
        rng.random((COUNT, COUNT)) < 0.3
    )


STORED = TransformFile(
    Transform(SIZE, sparse_factor(), "dsect"),
    {"settings": {"seed": 5}, "images": 2, "source": "a test"},
    (Iteration(1, 10.0, 0.5, 3.0, 0.25), Iteration(2, 9.5, 0.45, 2.5, 0.2)),
)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.npz"
    save_transform(path, STORED)
    return path


@pytest.fixture
def entries(good: Path) -> dict[str, Any]:
    with np.load(good, allow_pickle=False) as stored:
        return dict(stored)


def refused(path: Path, *words: str) -> str:
    """The sentence with which a file is refused."""
    with pytest.raises(FileProblem) as caught:
        load_transform(path)
    sentence = str(caught.value)
    assert path.name in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
    for word in words:
        assert word in sentence
    return sentence


def test_what_is_kept_comes_back(good: Path) -> None:
    found = load_transform(good)
    assert (found.transform.patch_size, found.transform.method) == (SIZE, "dsect")
    np.testing.assert_array_equal(found.transform.factor, STORED.transform.factor)
    assert dict(found.provenance) == dict(STORED.provenance)
    assert tuple(found.history) == tuple(STORED.history)


@pytest.mark.parametrize(("canonical", "size"), [("haar", 2), ("fourier", 3), ("identity", 3)])
def test_phi_and_the_average_are_kept(canonical: str, size: int, tmp_path: Path) -> None:
    factor = sparse_factor()[: size**2, : size**2]
    save_transform(tmp_path / "t.npz", TransformFile(Transform(size, factor, "dsect", canonical, True)))
    found = load_transform(tmp_path / "t.npz").transform
    assert (found.canonical, found.average_with_canonical) == (canonical, True)
    np.testing.assert_array_equal(found.matrix, Transform(size, factor, "dsect", canonical).matrix)


def test_files_of_format_1_are_read(tmp_path: Path) -> None:
    """As dstl wrote them before there was a choice of Phi: its entries, in its order."""
    transform = STORED.transform
    rows, columns = np.nonzero(transform.factor)
    np.savez_compressed(
        tmp_path / "old.npz",
        format=np.int64(1),
        patch_size=np.int64(SIZE),
        method=np.str_("conditioned"),
        rows=rows.astype(np.int32),
        columns=columns.astype(np.int32),
        values=transform.factor[rows, columns],
        condition=np.float64(transform.condition),
        density=np.float64(transform.density),
        frobenius_norm=np.float64(transform.frobenius_norm),
        provenance=np.str_(json.dumps({"settings": {"learn": {"max_condition": 1.25}}}, sort_keys=True)),
        history=np.array([(1, 10.0, 0.5, 3.0, 0.25)]).reshape(-1, 5),
    )
    found = load_transform(tmp_path / "old.npz")
    np.testing.assert_array_equal(found.transform.factor, transform.factor)
    assert (found.transform.canonical, found.transform.average_with_canonical) == ("dct", False)
    assert found.transform.method == "conditioned"
    assert found.history == (Iteration(1, 10.0, 0.5, 3.0, 0.25),)


def test_a_file_without_history(tmp_path: Path) -> None:
    save_transform(tmp_path / "t.npz", TransformFile(Transform.fixed(4)))
    found = load_transform(tmp_path / "t.npz")
    np.testing.assert_array_equal(found.transform.factor, np.eye(16))
    assert (found.history, dict(found.provenance)) == ((), {})


def test_numpy_alone_reads_the_file(entries: dict[str, Any]) -> None:
    factor = np.zeros((COUNT, COUNT))
    factor[entries["rows"], entries["columns"]] = entries["values"]
    np.testing.assert_array_equal(factor, STORED.transform.factor)
    assert len(entries["values"]) == np.count_nonzero(factor)
    assert (int(entries["format"]), int(entries["patch_size"]), str(entries["method"])) == (2, SIZE, "dsect")
    assert float(entries["condition"]) == pytest.approx(np.linalg.cond(factor))
    assert float(entries["density"]) == np.count_nonzero(factor) / factor.size
    assert float(entries["frobenius_norm"]) == pytest.approx(np.linalg.norm(factor))
    assert json.loads(str(entries["provenance"])) == dict(STORED.provenance)
    np.testing.assert_array_equal(entries["history"][:, 1], [10.0, 9.5])


def test_an_existing_file_is_overwritten_only_on_demand(good: Path) -> None:
    before = good.read_bytes()
    other = TransformFile(Transform.fixed(2))
    with pytest.raises(FileProblem, match=r"good\.npz.*--force"):
        save_transform(good, other)
    assert good.read_bytes() == before
    save_transform(good, other, overwrite=True)
    assert load_transform(good).transform.patch_size == 2
    assert [path.name for path in good.parent.iterdir()] == ["good.npz"]


def first_replaced(values: Any, first: Any) -> Any:
    return np.concatenate((np.array([first]), values[1:].astype(np.array([first]).dtype)))


WRONG: dict[str, Any] = {
    "newer format": lambda e: {"format": np.int64(3)},
    "text as format": lambda e: {"format": np.str_("one")},
    "list as format": lambda e: {"format": np.array([1, 1])},
    "infinite format": lambda e: {"format": np.float64(np.inf)},
    "NaN as format": lambda e: {"format": np.float64(np.nan)},
    "unknown Phi": lambda e: {"canonical": np.str_("magic")},
    "Phi that has no such patches": lambda e: {"canonical": np.str_("haar")},
    "list as average": lambda e: {"average_with_canonical": np.array([True, False])},
    "patch of nothing": lambda e: {"patch_size": np.int64(0)},
    "negative patch": lambda e: {"patch_size": np.int64(-3)},
    "patch too large": lambda e: {"patch_size": np.int64(33)},
    "huge patch": lambda e: {"patch_size": np.int64(10**9)},
    "patch too small": lambda e: {"patch_size": np.int64(2)},
    "another patch": lambda e: {"patch_size": np.int64(4)},
    "list as patch": lambda e: {"patch_size": np.array([3, 3])},
    "infinite patch": lambda e: {"patch_size": np.float64(np.inf)},
    "NaN among the values": lambda e: {"values": first_replaced(e["values"], np.nan)},
    "infinite value": lambda e: {"values": first_replaced(e["values"], np.inf)},
    "text as value": lambda e: {"values": first_replaced(e["values"], "a")},
    "complex value": lambda e: {"values": first_replaced(e["values"], 1j)},
    "whole-number values": lambda e: {"values": np.rint(e["values"]).astype(np.int64)},
    "row out of range": lambda e: {"rows": first_replaced(e["rows"], COUNT)},
    "column out of range": lambda e: {"columns": first_replaced(e["columns"], -1)},
    "huge index": lambda e: {"rows": first_replaced(e["rows"].astype(np.uint64), np.uint64(2**64 - 1))},
    "fractional index": lambda e: {"rows": e["rows"] + 0.5},
    "text as index": lambda e: {"rows": e["rows"].astype("U3")},
    "too few rows": lambda e: {"rows": e["rows"][1:]},
    "a table of rows": lambda e: {"rows": e["rows"][None], "columns": e["columns"][None], "values": e["values"][None]},
    "a row of zeros": lambda e: {"values": np.where(e["rows"] == 4, 0.0, e["values"])},
    "no values": lambda e: {"rows": e["rows"][:0], "columns": e["columns"][:0], "values": e["values"][:0]},
    "almost singular": lambda e: {"values": np.where(e["rows"] == 4, 1e-18, 1.0) * e["values"]},
    "history of another shape": lambda e: {"history": e["history"][:, :4]},
    "history of one number": lambda e: {"history": np.float64(1)},
    "text as history": lambda e: {"history": np.full((1, 5), "a")},
    "complex history": lambda e: {"history": e["history"] * 1j},
    "infinite iteration": lambda e: {"history": np.full((1, 5), np.inf)},
    "NaN iteration": lambda e: {"history": np.full((1, 5), np.nan)},
    "provenance cut off": lambda e: {"provenance": np.str_('{"settings"')},
    "provenance is a list": lambda e: {"provenance": np.str_("[1]")},
    "provenance without end": lambda e: {"provenance": np.str_("[" * 200_000)},
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_entries(kind: str, entries: dict[str, Any], tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "bad.npz", **(entries | WRONG[kind](entries)))
    refused(tmp_path / "bad.npz")


def test_every_missing_entry_is_named(entries: dict[str, Any], tmp_path: Path) -> None:
    measured = {"condition", "density", "frobenius_norm"}  # measured again when loaded
    for key in sorted(entries.keys() - measured):
        np.savez(tmp_path / "bad.npz", **{name: value for name, value in entries.items() if name != key})
        refused(tmp_path / "bad.npz", repr(key))


def test_measured_numbers_are_not_taken_on_trust(entries: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", **(entries | {"condition": np.float64(1), "density": np.float64(0.01)}))
    found = load_transform(tmp_path / "t.npz").transform
    assert found.condition == STORED.transform.condition
    assert found.density == STORED.transform.density


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("key", ["format", "patch_size", "method", "rows", "values", "provenance", "history"])
def test_objects_are_never_unpickled(key: str, entries: dict[str, Any], tmp_path: Path) -> None:
    hostile = np.empty(1, object)
    hostile[0] = Trap(tmp_path / "sprung")
    np.savez(tmp_path / "bad.npz", **(entries | {key: hostile}))
    refused(tmp_path / "bad.npz")
    assert not (tmp_path / "sprung").exists()


def test_files_of_another_kind(good: Path) -> None:
    data = good.read_bytes()
    bad = good.with_name("bad.npz")
    for other in (
        b"",
        b"P",
        b"hello\n",
        b"PK\x03\x04",
        b"\x80\x04K\x01.",
        b"\x93NUMPY",
        b"\x89PNG\r\n\x1a\n" + bytes(50),
    ):
        bad.write_bytes(other)
        refused(bad)
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("readme.txt", "no arrays here")
    refused(bad, "'format'")
    bad.write_bytes(data[:-30])
    refused(bad)


def test_an_array_file(tmp_path: Path) -> None:
    np.save(tmp_path / "bad.npy", np.eye(COUNT))
    refused(tmp_path / "bad.npy", "not a transform file")


def test_a_truncated_archive(good: Path) -> None:
    data = good.read_bytes()
    bad = good.with_name("bad.npz")
    for length in np.linspace(1, len(data) - 1, 12).astype(int):
        bad.write_bytes(data[:length])
        refused(bad)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    refused(tmp_path / "none.npz", "no transform file")
    refused(tmp_path)


@pytest.mark.parametrize("deep", ["[" * 700 + "]" * 700, '{"a":' * 21 + "1" + "}" * 21])
def test_a_provenance_that_is_nested_deeply(deep: str, entries: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "deep.npz", **entries | {"provenance": f'{{"a": {deep}}}'})
    refused(tmp_path / "deep.npz", "its provenance is nested too deeply")


def test_an_archive_that_unpacks_to_too_much(entries: dict[str, Any], tmp_path: Path) -> None:
    bomb = np.zeros(9_000_000)  # 72 MB in some kilobytes
    np.savez_compressed(tmp_path / "bad.npz", **(entries | {"values": bomb}))
    assert (tmp_path / "bad.npz").stat().st_size < 200_000
    refused(tmp_path / "bad.npz", "too large")


def test_a_long_history_is_refused_and_never_written(entries: dict[str, Any], tmp_path: Path) -> None:
    """A million records are a gigabyte of Python's numbers."""
    np.savez_compressed(tmp_path / "bad.npz", **(entries | {"history": np.zeros((1_500_000, 5))}))
    start = time.process_time()
    refused(tmp_path / "bad.npz", "its history is too long")
    assert time.process_time() - start < 1
    records = [replace(STORED.history[0], number=number) for number in range(LONGEST_HISTORY + 7)]
    save_transform(tmp_path / "long.npz", replace(STORED, history=records))
    assert [record.number for record in load_transform(tmp_path / "long.npz").history] == [
        record.number for record in records[7:]
    ]


def test_a_large_file_is_not_even_opened(tmp_path: Path) -> None:
    with (tmp_path / "bad.npz").open("wb") as stream:
        stream.truncate(65 * 2**20)
    refused(tmp_path / "bad.npz", "too large")


def test_an_array_that_claims_more_than_it_holds(entries: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "made.npz", **entries)
    with zipfile.ZipFile(tmp_path / "made.npz") as made, zipfile.ZipFile(tmp_path / "bad.npz", "w") as bad:
        for name in made.namelist():
            body = made.read(name)
            if name == "values.npy":
                head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }"
                body = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + bytes(80)
            bad.writestr(name, body)
    refused(tmp_path / "bad.npz")


def test_an_encrypted_archive(good: Path) -> None:
    data = bytearray(good.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.find(mark)
        while place >= 0:
            data[place + offset] |= 1  # the flag that says so
            place = data.find(mark, place + 4)
    bad = good.with_name("bad.npz")
    bad.write_bytes(data)
    refused(bad)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4))
def test_random_damage_is_noticed_or_harmless(good: Path, flips: list[tuple[float, int]]) -> None:
    data = bytearray(good.read_bytes())
    for place, change in flips:
        data[int(place * len(data))] ^= change
    bad = good.with_name("bad.npz")
    bad.write_bytes(data)
    try:
        found = load_transform(bad)
    except FileProblem:
        refused(bad)
    else:
        np.testing.assert_array_equal(found.transform.factor, STORED.transform.factor)


@pytest.mark.parametrize("content", [b"hello", b"", b"\x93NUMPY\x01\x00", b"\x80\x04K\x01."])
def test_what_is_no_archive_is_called_so(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    path.write_bytes(content)
    with pytest.raises(FileProblem, match=r"t\.npz is not a transform file; give a \.npz"):
        load_transform(path)


def test_a_transform_saves_and_loads_itself(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    STORED.transform.save(path)
    loaded = Transform.load(str(path))
    np.testing.assert_array_equal(loaded.factor, STORED.transform.factor)
    assert loaded.facts() == STORED.transform.facts()
    other = Transform.fixed(4, "haar")
    with pytest.raises(FileProblem, match=r"own\.npz already exists"):
        other.save(path)
    other.save(path, overwrite=True)
    assert Transform.load(path).canonical == "haar"
