"""Picture files: read with everything in them, changed only in their pixels, written back complete."""
