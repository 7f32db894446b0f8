"""Models with a planted cause of slowness, their mended twins, and models without a cause: what 09 finds in them."""
