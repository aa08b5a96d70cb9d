"""What every layer stands on: threads, progress, names, files that appear complete or not at all."""
