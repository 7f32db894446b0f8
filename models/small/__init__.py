"""Small models in prime sizes: a graph of each shape that the stages must cope with."""
