"""Make the photographs of sample_images: free pictures as the simulated camera takes them at ISO 6400.

rocket.png and rocket_noisy.jpg, whose noise is read well; coffee.png and coffee_noisy.jpg, whose noise is not found.

Run from the root of the project: python benchmarks/sample_photograph.py
"""

from pathlib import Path

import imagecodecs
import skimage.data

from dstl_cli.noise.synthetic import camera_jpeg

FOLDER = Path(__file__).resolve().parents[1] / "sample_images"
ISO = 6400

if __name__ == "__main__":
    parts = {"rocket": skimage.data.rocket()[100:356, 160:480], "coffee": skimage.data.coffee()[60:316, 110:430]}
    for name, part in parts.items():
        imagecodecs.imwrite(FOLDER / f"{name}.png", part.copy())
        (FOLDER / f"{name}_noisy.jpg").write_bytes(camera_jpeg(part, ISO, seed=0))
