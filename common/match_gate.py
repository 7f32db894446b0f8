"""The least share of a model that a file of another program must match; one below it is of another model."""

# docs/VALIDATION.md has the shares of right and of wrong pairs.
LEAST_SHARE = 0.8
