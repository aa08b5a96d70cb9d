"""Addresses: told from paths, taken apart, and objects that are put whole or not at all."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dstl_cli.base.addresses import Address, place_of, sizes_below, whole_object
from dstl_cli.errors import FileProblem, UsageProblem

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def top() -> Iterator[Address]:
    """An empty folder of fsspec's store in memory."""
    yield Address("memory://", "top")
    fsspec.filesystem("memory").store.clear()


def write(address: Address, content: bytes, **how: bool) -> None:
    with whole_object(address, **({"overwrite": False} | how)) as stream:
        stream.write(content)


@pytest.mark.parametrize("text", ["a.png", "a/b", "/a:b", "C:/x", "http:/x", "a//b", "S3", "-", "s3:"])
def test_paths_stay_paths(text: str) -> None:
    assert place_of(text) == Path(text)


def test_addresses_are_taken_apart_and_put_together() -> None:
    assert place_of("file:///a/b.png") == Path("/a/b.png")
    place = place_of("s3://bucket/a/b.tar.png")
    assert isinstance(place, Address)
    assert (place.name, str(place.parent), str(place)) == ("b.tar.png", "s3://bucket/a", "s3://bucket/a/b.tar.png")
    assert str(place.with_name("c.png")) == "s3://bucket/a/c.png"
    assert str(place_of("s3://bucket/")) == "s3://bucket"
    assert str(place.parent / Path("x/y.png")) == "s3://bucket/a/x/y.png"
    inner = place_of("zip://a.png::https://host:80/all.zip")
    assert inner == Address("zip://", "a.png", "::https://host:80/all.zip")
    assert place.parent.holds(place)
    assert not Address("s3://", "bucket/a/b").holds(place)


def test_secrets_are_not_shown() -> None:
    signed = place_of("https://host/a.png?signature=secret")
    assert isinstance(signed, Address)
    assert (str(signed), signed.name, signed.rest) == ("https://host/a.png", "a.png", "?signature=secret")
    with pytest.raises(UsageProblem, match="password") as told:
        place_of("https://me:secret@host/a.png")
    assert "secret" not in str(told.value)
    inner = place_of("zip://a.png::http://h/all.zip?sig=secret::filecache://?b=secret")
    assert str(inner) == "zip://a.png::http://h/all.zip::filecache://"


@pytest.mark.parametrize("kind", [ValueError, ImportError])
def test_secrets_are_not_shown_where_a_store_says_them(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    signed = Address("https://", "host/a.png", "?sig=secret&b=%27secret")

    def fail(self: Address) -> None:
        raise kind(f"404, url='https://host/a.png{signed.rest}', see https://host/a.png{signed.rest}")

    monkeypatch.setattr(Address, "_opened", fail)
    with pytest.raises((FileProblem, UsageProblem), match=r"404, url='https://host/a\.png', see") as told:
        signed.read()
    assert "secret" not in str(told.value)


def test_objects_appear_whole_and_are_kept(top: Address) -> None:
    path = top / "a.png"
    stopped = whole_object(path, overwrite=True)
    stopped.__enter__().write(b"half")
    assert not stopped.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert path.size() is None
    write(path, b"one")
    with pytest.raises(FileProblem, match="already exists"):
        write(path, b"two")
    with pytest.raises(FileProblem, match="not what this run writes"):
        write(path, b"two", same=True)
    write(path, b"one", same=True)
    assert path.read() == b"one"
    write(path, b"two", overwrite=True)
    assert (path.read(), path.size()) == (b"two", 3)
    write(top / "empty", b"")
    write(top / "empty", b"x", same=True)
    assert (top / "empty").read() == b"x"


def test_folders_are_listed(top: Address) -> None:
    for name in ("b.png", "a.png", "sub/c.png"):
        write(top / name, name.encode())
    assert top.is_folder()
    assert not (top / "a.png").is_folder()
    assert list(top.files(recursive=False).items()) == [("a.png", 5), ("b.png", 5)]
    assert list(top.files(recursive=True)) == ["a.png", "b.png", "sub/c.png"]
    asked = [top / "a.png", top / "sub/c.png", top / "none.png"]
    assert sizes_below(asked).keys() >= set(asked[:2])
    assert asked[2] not in sizes_below(asked)
    assert sizes_below([top / "nowhere/x.png"]) == {}


@pytest.mark.parametrize("text", ["https://h/a.png", "zip://a.png::s3://b/c.zip", "sftp://h/a.png", "s3://b/a.png?v=1"])
def test_what_shows_half_files_is_not_written(text: str) -> None:
    place = place_of(text)
    assert isinstance(place, Address)
    with pytest.raises(UsageProblem, match="in one step"):
        place.check_writable()


def test_what_goes_wrong_is_one_sentence(top: Address) -> None:
    with pytest.raises(FileProblem, match=r"memory://top/a\.png does not exist; check the address\."):
        (top / "a.png").read()
    with pytest.raises(FileProblem, match="Protocol not known"):
        Address("nothing://", "x").read()
