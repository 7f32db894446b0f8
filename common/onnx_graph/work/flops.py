"""FLOPs of the steps that several formulas share, per element."""

from __future__ import annotations

TANH = 1
SIGMOID = 4
SILU = 5  # a sigmoid and a product
RMS_NORM = 4
LAYER_NORM = 7
DEQUANTIZE = 2  # difference and product, as DequantizeLinear
QUANTIZE = 3  # division, rounding, saturation, as QuantizeLinear
REQUANTIZE = 2  # a product and a rounding sum per output of an integer contraction
QUANTIZE_DYNAMICALLY = 5  # minimum, maximum, division, rounding, saturation, as DynamicQuantizeLinear
