"""Make sample_images/coffee.png and coffee_noisy.jpg: a free picture as the simulated camera takes it at ISO 6400.

Run from the root of the project: python benchmarks/sample_photograph.py
"""

from pathlib import Path

import imagecodecs
import skimage.data

from dstl_cli.noise.synthetic import camera_jpeg

FOLDER = Path(__file__).resolve().parents[1] / "sample_images"
ISO = 6400

if __name__ == "__main__":
    clean = skimage.data.coffee()[60:316, 110:430].copy()
    imagecodecs.imwrite(FOLDER / "coffee.png", clean)
    (FOLDER / "coffee_noisy.jpg").write_bytes(camera_jpeg(clean, ISO, seed=0))
