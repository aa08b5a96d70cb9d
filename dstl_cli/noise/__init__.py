"""The noise of a picture: estimating it, and adding it with a seed."""
