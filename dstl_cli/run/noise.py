"""Noise models in files."""

import json
from pathlib import Path

from dstl_cli.base.names import display_name
from dstl_cli.errors import FileProblem
from dstl_cli.noise.model import NoiseModel, model_from_json

MOST_BYTES = 1_000_000  # of a file with a model


def load_noise(path: Path) -> NoiseModel:
    """The model in a JSON file, as `to_json` tells it, or the `noise` of a plan."""
    name = display_name(path)
    try:
        with path.open("rb") as stream:
            facts = json.loads(stream.read(MOST_BYTES))
        return model_from_json(facts.get("noise", facts))
    except OSError as error:
        raise FileProblem(f"{name} cannot be read ({error.strerror or error}); check the name.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, AttributeError):
        raise FileProblem(f"{name} is no JSON file with a noise model; give one that has kind and channels.") from None
    except ValueError as error:
        raise FileProblem(f"{name} holds no noise model: {error}") from None
