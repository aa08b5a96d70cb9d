"""Patches of a channel: where they are, taking and adding them, coding them."""
