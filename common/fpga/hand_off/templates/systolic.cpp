
namespace {

constexpr int ROWS = $rows;  // of the array
constexpr int COLS = $cols;
constexpr int SIMD = $simd;  // products that an element adds per cycle
constexpr int TILE_ROWS = $tile_rows;  // on the chip
constexpr int TILE_COLS = $tile_cols;
constexpr int TILE_DEPTH = $tile_depth;
constexpr int ROW_FOLDS = TILE_ROWS / ROWS;
constexpr int COL_FOLDS = TILE_COLS / COLS;
constexpr int STEPS = TILE_DEPTH / SIMD;

// A product of `lines` of pixels by `channels` of weights, each `depth` long; the pixels of a convolution are gathered.
struct call_t {
    int32_t groups, channels;  // products one after the other, and channels of each
    int32_t batch, in_height, in_width, in_channels;  // in_channels of one group
    int32_t out_height, out_width, kernel_height, kernel_width;
    int32_t stride_height, stride_width, dilation_height, dilation_width, pad_top, pad_left;
    int32_t apart_height, apart_width;  // 1, or the stride of a transposed convolution: its pixels are so far apart
    int32_t in_zero, out_zero;
    float least, most;
    int32_t is_transposed, columns_outside;

    int64_t pixels() const { return int64_t(batch) * out_height * out_width; }
    int64_t depth() const { return int64_t(kernel_height) * kernel_width * in_channels; }
};

int64_t tiles(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

// Operand k of a pixel: the input at its place under the window, rows of the window outermost, channels innermost.
element_t gathered($port_arguments, reader_t &input, const call_t &call, int64_t group, int64_t pixel, int64_t k) {
#pragma HLS INLINE
    const int64_t channel = k % call.in_channels, tap = k / call.in_channels;
    const int64_t x = pixel % call.out_width, y = pixel / call.out_width % call.out_height;
    const int64_t image = pixel / call.out_width / call.out_height;
    const int64_t in_x = x * call.stride_width - call.pad_left + tap % call.kernel_width * call.dilation_width;
    const int64_t in_y = y * call.stride_height - call.pad_top + tap / call.kernel_width * call.dilation_height;
    const bool is_between = in_x % call.apart_width || in_y % call.apart_height;
    const int64_t column = in_x / call.apart_width, line = in_y / call.apart_height;
    if (in_x < 0 || in_y < 0 || is_between || column >= call.in_width || line >= call.in_height) {
        return element_t(call.in_zero);
    }
    const int64_t place = (image * call.in_height + line) * call.in_width + column;
    return input.element($port_names, (place * call.groups + group) * call.in_channels + channel);
}

// Load the lines from `first` on, products `k_first` on, of pixels or of weights; what a tile has too much of is zero.
template <int SIDE, int FOLDS>
void load($port_arguments, element_t tile[SIDE][FOLDS][STEPS][SIMD], const call_t &call, bool is_pixels, int64_t base,
          int64_t group, int64_t first, int64_t k_first) {
    reader_t source(base);
    const int64_t lines = is_pixels ? call.pixels() : call.channels;
line:
    for (int line = 0; line < SIDE * FOLDS; ++line) {
    operand:
        for (int k = 0; k < TILE_DEPTH; ++k) {
#pragma HLS PIPELINE II=1
            const int64_t at = first + line, deep = k_first + k;
            element_t value = 0;
            if (at < lines && deep < call.depth()) {
                value = is_pixels ? gathered($port_names, source, call, group, at, deep)
                                  : source.element($port_names, (group * call.channels + at) * call.depth() + deep);
            }
            tile[line % SIDE][line / SIDE][k / SIMD][k % SIMD] = value;
        }
    }
}

// The array: every element adds SIMD products per cycle. A fold is ROWS x COLS sums.
void compute(element_t a[ROWS][ROW_FOLDS][STEPS][SIMD], element_t b[COLS][COL_FOLDS][STEPS][SIMD],
             sum_t sums[ROWS][COLS][ROW_FOLDS][COL_FOLDS], bool is_first) {
row_fold:
    for (int i = 0; i < ROW_FOLDS; ++i) {
    col_fold:
        for (int j = 0; j < COL_FOLDS; ++j) {
        step:
            for (int k = 0; k < STEPS; ++k) {
#pragma HLS PIPELINE II=1
            row:
                for (int r = 0; r < ROWS; ++r) {
#pragma HLS UNROLL
                column:
                    for (int c = 0; c < COLS; ++c) {
#pragma HLS UNROLL
                        sum_t sum = is_first && k == 0 ? sum_t(0) : sums[r][c][i][j];
                    product:
                        for (int s = 0; s < SIMD; ++s) {
#pragma HLS UNROLL
                            sum += sum_t(a[r][i][k][s]) * sum_t(b[c][j][k][s]);
                        }
                        sums[r][c][i][j] = sum;
                    }
                }
            }
        }
    }
}

// Write the results of a tile, channels innermost. Parameters of a channel: its bias (int32) and its scale (float).
void store($port_arguments, sum_t sums[ROWS][COLS][ROW_FOLDS][COL_FOLDS], const call_t &call, int64_t base,
           int64_t parameters, int64_t group, int64_t first_row, int64_t first_col, const program_t &program,
           const int16_t table[TABLE_ENTRIES]) {
    reader_t bias(parameters), scale(parameters);
    operands_t operands(program);
    writer_t output(base);
    const int pixels_of_tile = call.is_transposed ? TILE_COLS : TILE_ROWS;
    const int channels_of_tile = call.is_transposed ? TILE_ROWS : TILE_COLS;
    const int64_t first_pixel = call.is_transposed ? first_col : first_row;
    const int64_t first_channel = call.is_transposed ? first_row : first_col;
pixel:
    for (int p = 0; p < pixels_of_tile; ++p) {
    channel:
        for (int n = 0; n < channels_of_tile; ++n) {
#pragma HLS PIPELINE II=1
            const int64_t pixel = first_pixel + p, channel = first_channel + n;
            if (pixel >= call.pixels() || channel >= call.channels) continue;
            const int i = call.is_transposed ? n : p, j = call.is_transposed ? p : n;
            const int64_t of_all = group * call.channels + channel;
            const value_t value = epilogue(sums[i % ROWS][j % COLS][i / ROWS][j / COLS],
                                           sum_t(bias.value<int32_t>($port_names, 2 * of_all)),
                                           scale.value<float>($port_names, 2 * of_all + 1), call.out_zero, call.least,
                                           call.most);
            const int64_t at[4] = {0, 0, pixel, of_all};
            output.element($port_names, pixel * call.groups * call.channels + of_all,
                           element_t(stepped($port_names, program, table, operands, 0, int(program.steps_after), at,
                                             value)));
        }
    }
    output.flush($port_names);
}

// One tile along k: the next operands load while these are used, because both are written and read once.
void step($port_arguments, sum_t sums[ROWS][COLS][ROW_FOLDS][COL_FOLDS], const call_t &call, int64_t input,
          int64_t weights, int64_t group, int64_t row, int64_t col, int64_t k) {
#pragma HLS DATAFLOW
    static element_t a[ROWS][ROW_FOLDS][STEPS][SIMD];
    static element_t b[COLS][COL_FOLDS][STEPS][SIMD];
#pragma HLS ARRAY_PARTITION variable=a dim=1 complete
#pragma HLS ARRAY_RESHAPE variable=a dim=4 complete
#pragma HLS BIND_STORAGE variable=a type=ram_2p impl=$a_storage
#pragma HLS ARRAY_PARTITION variable=b dim=1 complete
#pragma HLS ARRAY_RESHAPE variable=b dim=4 complete
#pragma HLS BIND_STORAGE variable=b type=ram_2p impl=$b_storage
    load<ROWS, ROW_FOLDS>($port_names, a, call, !call.is_transposed, call.is_transposed ? weights : input, group, row, k);
    load<COLS, COL_FOLDS>($port_names, b, call, call.is_transposed, call.is_transposed ? input : weights, group, col, k);
    compute(a, b, sums, k == 0);
}

}  // namespace

// One call. Every base is in words of a port; all tensors begin at port 0. Layouts: input (batch, height, width,
// groups * in_channels), weights (groups * channels, kernel_height, kernel_width, in_channels), output (batch, height,
// width, groups * channels), parameters (groups * channels) of {int32 bias, float scale}. The zero point of the input
// is in the bias: bias - in_zero * (sum of the channel's weights). A transposed convolution turns its kernel by half a
// turn, has stride 1, pads by (kernel - 1) * dilation - its own padding, and has its stride as `apart`. `steps` is a
// program with the operators that the plan fused behind the requantization (`layers` of a call in the specification): a
// residual addition reads its other operand at the coordinates (0, 0, pixel, channel), a function of one value is a
// table.
extern "C" void $design($port_arguments, int64_t input, int64_t weights, int64_t parameters, int64_t output,
                        int64_t steps, int32_t groups, int32_t channels, int32_t batch, int32_t in_height,
                        int32_t in_width, int32_t in_channels, int32_t out_height, int32_t out_width,
                        int32_t kernel_height, int32_t kernel_width, int32_t stride_height, int32_t stride_width,
                        int32_t dilation_height, int32_t dilation_width, int32_t pad_top, int32_t pad_left,
                        int32_t apart_height, int32_t apart_width, int32_t in_zero, int32_t out_zero, float least,
                        float most, int32_t is_transposed, int32_t columns_outside) {
$interfaces
    static sum_t sums[ROWS][COLS][ROW_FOLDS][COL_FOLDS];
#pragma HLS ARRAY_PARTITION variable=sums dim=1 complete
#pragma HLS ARRAY_PARTITION variable=sums dim=2 complete
#pragma HLS BIND_STORAGE variable=sums type=ram_2p impl=$sums_storage
    static program_t program;
    static int16_t table[TABLE_ENTRIES];
    load_program($port_names, steps, program, table);
    const call_t call = {groups, channels, batch, in_height, in_width, in_channels, out_height, out_width,
                         kernel_height, kernel_width, stride_height, stride_width, dilation_height, dilation_width,
                         pad_top, pad_left, apart_height, apart_width, in_zero, out_zero, least, most, is_transposed,
                         columns_outside};
    const int64_t rows = tiles(is_transposed ? channels : call.pixels(), TILE_ROWS);
    const int64_t cols = tiles(is_transposed ? call.pixels() : channels, TILE_COLS);
    const int64_t outer = columns_outside ? cols : rows, inner = columns_outside ? rows : cols;
product:
    for (int64_t group = 0; group < groups; ++group) {
    outer_tile:
        for (int64_t o = 0; o < outer; ++o) {
        inner_tile:
            for (int64_t i = 0; i < inner; ++i) {
                const int64_t row = (columns_outside ? i : o) * TILE_ROWS, col = (columns_outside ? o : i) * TILE_COLS;
            along_k:
                for (int64_t k = 0; k < call.depth(); k += TILE_DEPTH) {
                    step($port_names, sums, call, input, weights, group, row, col, k);
                }
                store($port_names, sums, call, output, parameters, group, row, col, program, table);
            }
        }
    }
}
