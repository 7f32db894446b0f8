"""A load of an hour or more, part by part."""
