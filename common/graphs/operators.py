"""The taxonomy of operators that all rooms share: which operator types belong to which class.

It knows the operators of ONNX, and those that ONNX Runtime adds or puts in their place. A room may decide something
about operators, such as which of them an engine computes. It builds its own set from these classes.

Sources: ONNX, docs/Operators.md; ONNX Runtime, docs/ContribOperators.md.
"""

from __future__ import annotations


def _types(*names: str) -> frozenset[str]:
    return frozenset(" ".join(names).split())


# Domains of ONNX: its own operators, classical machine learning, and previews. Domains of ONNX Runtime: its own
# operators, those on the blocked layout (channels in blocks), and those with channels last.
ONNX, MACHINE_LEARNING, PREVIEW = "", "ai.onnx.ml", "ai.onnx.preview"
MICROSOFT, NCHWC, NHWC = "com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"

# --- contractions: operators whose work is multiply-accumulates -------------------------------------------------------

INT8_CONVOLUTIONS = _types("ConvInteger QLinearConv")
CONVOLUTIONS = INT8_CONVOLUTIONS | _types("Conv FusedConv NhwcConv NhwcFusedConv")
TRANSPOSED_CONVOLUTIONS = _types("ConvTranspose ConvTransposeWithDynamicPads QLinearConvTranspose")
# The positions that it samples are data: no window slides.
DEFORMABLE_CONVOLUTIONS = _types("DeformConv")

INT8_MATRIX_PRODUCTS = _types("MatMulInteger MatMulIntegerToFloat QLinearMatMul QGemm DynamicQuantizeMatMul")
MATRIX_PRODUCTS = INT8_MATRIX_PRODUCTS | _types(
    "Gemm MatMul Einsum FusedGemm FusedMatMul FusedMatMulActivation TransposeMatMul GemmFastGelu MatMulNBits",
    "QOrderedMatMul",
)
# Products with weights that are stored in packed blocks, each with its scale.
PACKED_PRODUCTS = _types("MatMulNBits MatMulBnb4 MatMulNBitsMlp MatMulNBitsQkv QMoE")
ATTENTION = _types("Attention MultiHeadAttention GroupQueryAttention")
CONTRACTIONS = CONVOLUTIONS | TRANSPOSED_CONVOLUTIONS | DEFORMABLE_CONVOLUTIONS | MATRIX_PRODUCTS | ATTENTION

# Operators that multiply bytes. MatMulNBits is none of them: its weights have few bits, but its products are of floats.
INT8_OPERATORS = INT8_CONVOLUTIONS | INT8_MATRIX_PRODUCTS | _types("QAttention DynamicQuantizeLSTM")

# Position of the weight among a convolution's operands; its trailing axes are the kernel.
CONVOLUTION_WEIGHT = {
    **dict.fromkeys(CONVOLUTIONS | TRANSPOSED_CONVOLUTIONS | DEFORMABLE_CONVOLUTIONS, 1),
    **dict.fromkeys(("QLinearConv", "QLinearConvTranspose"), 3),
}
# Position of a matrix product's right operand where it is not 1.
RIGHT_OPERAND = {"QLinearMatMul": 3, "QGemm": 3, "QOrderedMatMul": 2}

# --- operators over rows: a value needs all elements of its row -------------------------------------------------------

SOFTMAX = _types("Softmax QLinearSoftmax")
# Normalizations whose rows have the extent of their scale, with the position of the scale among the operands.
SCALE_OPERAND = {
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"), 1),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), 2),
}
NORMALIZATIONS = frozenset(SCALE_OPERAND) | _types("GroupNormalization InstanceNormalization")
REDUCTIONS = _types(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum",
    "ReduceSumSquare",
)

# --- windows without weights ------------------------------------------------------------------------------------------

POOLS = _types("MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool QLinearAveragePool QLinearGlobalAveragePool")

# --- operators over single elements -----------------------------------------------------------------------------------

GELUS = _types("Gelu FastGelu BiasGelu QuickGelu")
ACTIVATIONS = GELUS | _types(
    "Relu LeakyRelu PRelu Clip Sigmoid HardSigmoid HardSwish Tanh Elu Selu Celu Swish Mish Softplus Softsign"
)
ADDITIONS = _types("Add Sum QLinearAdd")
ARITHMETIC = _types("Erf Exp Sqrt Pow Neg Abs Add Sub Mul Div Min Max")
COPIES = _types("Identity Dropout")  # Dropout copies at inference
# QuantizeLinear is among these, as it ends what a kernel writes; DequantizeLinear is how a kernel reads.
POINTWISE = (
    ACTIVATIONS
    | ARITHMETIC
    | COPIES
    | _types("BatchNormalization Cast", QUANTIZE, "QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu")
)
QUANTIZERS = _types(QUANTIZE, DEQUANTIZE)

# --- operators that only put elements into other places ---------------------------------------------------------------

RESHAPES = _types("Reshape Flatten Squeeze Unsqueeze")
RESAMPLINGS = _types("Resize Upsample")
PIXEL_SHUFFLES = _types("DepthToSpace SpaceToDepth")
MOVEMENT = (
    RESHAPES
    | RESAMPLINGS
    | PIXEL_SHUFFLES
    | _types("Transpose Concat Slice Split Gather Pad Expand Tile Where QLinearConcat")
)

# What a runtime inserts between the nodes of a model: changes of layout and of precision, and copies.
INSERTED = (
    COPIES | RESHAPES | QUANTIZERS | _types("Cast Transpose ReorderInput ReorderOutput MemcpyFromHost MemcpyToHost")
)

# --- operators that hold subgraphs, and those whose result the shapes determine ---------------------------------------

CONTROL_FLOW = _types("If Loop Scan SequenceMap")
SHAPE_CONSTANTS = _types("Constant Shape Size")
