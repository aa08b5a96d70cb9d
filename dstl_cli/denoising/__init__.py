"""Denoising: the qualities, their settings, and the engines behind them."""
