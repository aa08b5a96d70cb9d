"""Noise models in files: read and written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dstl_cli.base.atomic import atomic_output
from dstl_cli.base.names import display_name
from dstl_cli.base.regular import open_regular
from dstl_cli.errors import DstlError, FileProblem
from dstl_cli.noise.model import NoiseModel, model_from_json
from dstl_cli.pixels.depth import Depth

UNITS = {True: "0-255", False: "of the file"}  # in which noise is counted, of depths with a scale and of others
UNIT_WORDS = {
    True: "on the 0-255 scale (8 to 16 bits)",
    False: "in units of their own (floats, signed and 32-bit numbers)",
}
MOST_BYTES = 1_000_000  # of a file with a model


@dataclass(frozen=True)
class NoiseFile:
    """A model from a file. units: what its file says that it is counted in, `UNITS`; None where that is not told."""

    name: str
    model: NoiseModel
    units: str | None


def noise_for(noise: "float | NoiseModel | NoiseFile | None", depth: Depth) -> float | NoiseModel | None:
    """What is known of the noise, for pixels of a depth; a model in units that they do not have is refused."""
    if not isinstance(noise, NoiseFile):
        return noise
    if noise.units is not None and noise.units != UNITS[depth.scaled]:
        others = UNIT_WORDS[not depth.scaled]
        raise DstlError(f"{noise.name} is a noise model of pictures {others}, unlike this one; make one of its kind.")
    return noise.model


def sigma_to_try(depth: Depth) -> str:
    """The option for pictures whose noise was overlooked, in the units that it has for such pixels."""
    return "--sigma 8" if depth.scaled else "--sigma X, in the units of the file,"


def load_noise(path: Path) -> NoiseModel:
    """The model in a JSON file, as `to_json` tells it, or the `noise` of a plan."""
    return load_noise_file(path)[0]


def load_noise_file(path: Path) -> tuple[NoiseModel, dict[str, Any]]:
    """The model in a JSON file, and what the file says of how it was made."""
    name = display_name(path)
    try:
        with open_regular(path) as stream:
            facts = json.loads(stream.read(MOST_BYTES))
        made = facts.get("made_from")
        return model_from_json(facts.get("noise", facts)), made if isinstance(made, dict) else {}
    except OSError as error:
        raise FileProblem(f"{name} cannot be read ({error.strerror or error}); check the name.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, AttributeError):
        raise FileProblem(f"{name} is no JSON file with a noise model; give one that has kind and channels.") from None
    except ValueError as error:
        raise FileProblem(f"{name} holds no noise model: {error}") from None


def save_noise(path: Path, model: NoiseModel, made_from: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Write a model for `load_noise`, with what it was made from; the file is complete or not there."""
    text = json.dumps({**model.to_json(), "made_from": dict(made_from)}, indent=2, allow_nan=False)
    with atomic_output(path, overwrite=overwrite) as stream:
        stream.write(f"{text}\n".encode())
