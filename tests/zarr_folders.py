"""Zarr folders for tests: what other programs leave behind."""

import json
from pathlib import Path
from typing import Any

import numpy as np


def ome_folder(
    path: Path,
    values: np.ndarray[Any, Any],
    *,
    version: int = 3,
    levels: int = 3,
    chunk: int = 32,
    shard: int | None = None,
) -> Path:
    """An OME-NGFF picture (0.4 as Zarr 2, 0.5 as Zarr 3) whose last axes are y and x, with attributes of its own.

    The reduced copies are twice as small each, rounded up, and filled with ones.
    """
    import zarr

    names = "tczyx"[5 - values.ndim :]
    group = zarr.create_group(store=str(path), zarr_format=version)
    shape, datasets = values.shape, []
    for level in range(levels):
        own: dict[str, Any] = {"dimension_names": list(names)} if version == 3 else {}
        if shard is not None and level == 0:
            own["shards"] = (*(1,) * (values.ndim - 2), shard, shard)
        chunks = (*(1,) * (values.ndim - 2), chunk, chunk)
        array = group.create_array(f"s{level}", shape=shape, chunks=chunks, dtype=values.dtype, **own)
        array[:] = values if level == 0 else 1
        scale = [1.0] * (values.ndim - 2) + [0.5 * 2.0**level] * 2
        datasets.append({"path": f"s{level}", "coordinateTransformations": [{"type": "scale", "scale": scale}]})
        shape = (*shape[:-2], *(-(-side // 2) for side in shape[-2:]))
    kinds = {"t": "time", "c": "channel"}
    axes = [{"name": name, "type": kinds.get(name, "space")} for name in names]
    said: dict[str, Any] = {"multiscales": [{"axes": axes, "datasets": datasets}], "omero": {"id": 7}}
    if version == 3:
        said["version"] = "0.5"
        group.attrs["ome"] = said
    else:
        said["multiscales"][0]["version"] = "0.4"
        group.attrs.update(said)
    labels = path / "labels"
    labels.mkdir()
    (labels / "about.json").write_text(json.dumps({"kept": True}))
    return path


def array_folder(path: Path, values: np.ndarray[Any, Any], *, version: int = 3, chunk: int = 32) -> Path:
    """A plain array."""
    import zarr

    chunks = tuple(min(chunk, side) for side in values.shape)
    array = zarr.create_array(
        store=str(path), shape=values.shape, chunks=chunks, dtype=values.dtype, zarr_format=version
    )
    array[:] = values
    return path
