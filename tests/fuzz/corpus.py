"""The files that are mutated, made from free pictures: small ones of every kind that dstl reads."""

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[Any]


def _pillow(array: Pixels, format: str, **options: Any) -> bytes:
    stream, image = io.BytesIO(), Image.fromarray(array)
    (image.quantize(16) if options.pop("palette", False) else image).save(stream, format, **options)
    return stream.getvalue()


def _tiff(array: Pixels, **options: Any) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(stream, array, **options)
    return stream.getvalue()


def _npy(array: Pixels) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _pictures() -> Iterator[tuple[str, bytes]]:
    from skimage import data

    rgb = np.ascontiguousarray(data.astronaut()[40:64, 200:231])
    grey = np.ascontiguousarray(data.camera()[100:124, 200:231])
    exif = Image.Exif()
    exif[274], exif[282], exif[34855] = 1, 72.0, 400
    told: dict[str, Any] = {"exif": exif.tobytes()}
    yield from (
        ("png", _pillow(rgb, "PNG", dpi=(72, 72), **told)),
        ("png", _pillow(grey, "PNG")),
        ("png", _pillow((grey.astype(np.uint16) * 257), "PNG")),
        ("png", _pillow(rgb, "PNG", palette=True, transparency=3)),
        ("jpeg", _pillow(rgb, "JPEG", quality=80, **told)),
        ("jpeg", _pillow(grey, "JPEG", progressive=True)),
        ("webp", _pillow(rgb, "WEBP", lossless=True, **told)),
        ("webp", _pillow(np.dstack([rgb, grey]), "WEBP")),
        ("bmp", _pillow(rgb, "BMP")),
        ("bmp", _pillow(grey, "BMP")),
        ("netpbm", _pillow(rgb, "PPM")),
        ("netpbm", b"P2\n31 24\n255\n" + b" ".join(b"%d" % value for value in grey.ravel()) + b"\n"),
        ("npy", _npy(rgb)),
        ("npy", _npy(grey.astype(np.float32))),
        ("other", _pillow(grey, "GIF")),
        ("other", _pillow(grey, "TGA")),
        ("other", _pillow(rgb, "PCX")),
        ("other", _pillow(rgb, "JPEG2000")),
        ("other", _pillow(rgb, "AVIF")),
    )
    for options in (
        {},
        {"compression": "lzw", "predictor": 2},
        {"compression": "zlib", "tile": (16, 16)},
        {"compression": "packbits", "rowsperstrip": 4},
        {"compression": "zstd"},
        {"compression": "jpeg"},
        {"bigtiff": True},
        {"byteorder": ">"},
    ):
        yield "tiff", _tiff(rgb, photometric="rgb", **options)
    yield "tiff", _tiff(np.stack([grey] * 3), imagej=True, metadata={"axes": "ZYX"})
    yield "tiff", _tiff(grey.astype(np.float32), compression="zlib", predictor=3)


def _kept() -> Iterator[tuple[str, bytes]]:
    """What dstl itself writes and reads again."""
    from dstl_cli.noise.blind import estimate_model
    from dstl_cli.noise.model import WhiteNoise
    from dstl_cli.run.journal import Journal
    from dstl_cli.run.noise import save_noise
    from dstl_cli.transforms.files import TransformFile, save_transform
    from dstl_cli.transforms.transform import Transform

    from .targets import training_in

    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        folder = Path(place)
        save_transform(folder / "t.npz", TransformFile(Transform(4, np.eye(16), "test"), {"seed": 0}))
        yield "transform", (folder / "t.npz").read_bytes()
        run = training_in(folder)
        for part in run.parts.values():
            list(run.read(part))
        for _, _ in zip(run.learn(), range(2), strict=False):
            run.save()
        yield "checkpoint", (folder / "t.npz.checkpoint").read_bytes()
        save_noise(folder / "n.json", WhiteNoise((3.0, 2.0, 1.0)), {"pictures": 2, "units": "0-255"})
        yield "noise", (folder / "n.json").read_bytes()
        with Journal(folder / "j.jsonl", command="denoise", pictures=2) as journal:
            for name in ("a.png", "b.png"):
                journal.add({"input": name, "output": f"out/{name}", "seconds": 0.1, "unchanged": False})
        yield "journal", (folder / "j.jsonl").read_bytes()
    rng = np.random.default_rng(0)
    level = np.linspace(10, 240, 192)[None].repeat(192, axis=0)
    grown, _ = estimate_model(np.clip(rng.normal(level, np.sqrt(level)), 0, 255).astype(np.uint8), kind="poisson")
    yield "noise", json.dumps(grown.to_json()).encode()


def _folders() -> Iterator[tuple[str, bytes]]:
    """Zarr folders of both versions, in archives: pages, reduced copies, shards; raw, or packed by what zarr takes."""
    if find_spec("zarr") is None:
        return
    import zarr
    from skimage import data

    grey = np.ascontiguousarray(data.camera()[100:124, 200:231])
    kinds = ((2, None, "auto"), (2, None, None), (3, None, None), (3, (1, 16, 16), "auto"))
    more = ((2, None, {"id": "bz2"}), (2, None, {"id": "lzma"}), (3, None, {"name": "gzip", "configuration": {}}))
    for version, shards, packed in kinds + more:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
            group = zarr.create_group(store=place, zarr_format=version)
            values = np.stack([grey] * 2)
            for level in range(2):
                told: dict[str, Any] = {"shards": shards, "compressors": packed, "chunks": (1, 8, 8)}
                array = group.create_array(str(level), shape=values.shape, dtype=values.dtype, **told)
                array[:] = values
                values = values[:, ::2, ::2]
            said = {"axes": list("zyx"), "datasets": [{"path": "0"}, {"path": "1"}]}
            group.attrs.update({"multiscales": [said]} if version == 2 else {"ome": {"multiscales": [said]}})
            stream = io.BytesIO()
            with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
                for path in sorted(Path(place).rglob("*")):
                    if path.is_file():
                        archive.write(path, path.relative_to(place), zipfile.ZIP_DEFLATED)
            yield "zarr", stream.getvalue()


@cache
def seeds() -> dict[str, list[bytes]]:
    """The files by their kinds."""
    found: dict[str, list[bytes]] = {}
    makers: tuple[Callable[[], Iterator[tuple[str, bytes]]], ...] = (_pictures, _kept, _folders)
    for make in makers:
        for kind, data in make():
            found.setdefault(kind, []).append(data)
    return found
