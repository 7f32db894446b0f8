
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
constexpr int BEAT_BYTES = PORTS * WORD_BYTES;
constexpr int BEAT_ELEMENTS = BEAT_BYTES * 8 / ELEMENT_BITS;
constexpr int WORD_ELEMENTS = WORD_BYTES * 8 / ELEMENT_BITS;

// The largest divisor of `whole` up to `most`.
constexpr int divisor(int whole, int most) { return whole % most ? divisor(whole, most - 1) : most; }

// Groups of SIMD elements of a line that enter the banks of a side per cycle: one bank each, and no more than a beat has.
constexpr int groups_of(int banks) {
    return BEAT_ELEMENTS % SIMD ? 1 : divisor(BEAT_ELEMENTS / SIMD, banks < BEAT_ELEMENTS / SIMD ? banks : BEAT_ELEMENTS / SIMD);
}

// One word of every port: consecutive bytes of a tensor.
struct beat_t {
    word_t word[PORTS];

    uint8_t byte(int64_t index) const { return word[index / WORD_BYTES].byte[index % WORD_BYTES]; }

    template <typename value_t>
    value_t value(int64_t index) const {
        uint8_t bytes[sizeof(value_t)];
        for (unsigned i = 0; i < sizeof(value_t); ++i) bytes[i] = byte(index * sizeof(value_t) + i);
        value_t result;
        std::memcpy(&result, bytes, sizeof(value_t));
        return result;
    }

    element_t element(int64_t index) const {
$unpack_beat
    }
};

inline beat_t read_beat($port_arguments, int64_t at) {
#pragma HLS INLINE
    beat_t beat;
$beat_reads
    return beat;
}

// The words from `first` to `last` of a tensor, one of each port at most, each in the place of its port.
inline beat_t read_words($port_arguments, int64_t base, int64_t first, int64_t last) {
#pragma HLS INLINE
    beat_t beat = {};
    int64_t at;
$word_reads
    return beat;
}

inline void write_beat($port_arguments, int64_t at, const beat_t &beat) {
#pragma HLS INLINE
$beat_writes
}

// A tensor that is written beat by beat. Of one that is not complete, the rest is read before it leaves.
struct beat_writer_t {
    int64_t base, held;
    beat_t beat, mask;

    explicit beat_writer_t(int64_t at) : base(at), held(-1), beat(), mask() {}

    void byte(int64_t index, uint8_t value, uint8_t bits) {
        uint8_t &at = beat.word[index / WORD_BYTES].byte[index % WORD_BYTES];
        at = uint8_t((at & ~bits) | (value & bits));
        mask.word[index / WORD_BYTES].byte[index % WORD_BYTES] |= bits;
    }

    void element(int64_t index, element_t value) {
$pack_beat
    }

    void go_to($port_arguments, int64_t index) {
        if (index == held) return;
        flush($port_names);
        held = index;
        mask = beat_t();
    }

    void flush($port_arguments) {
        if (held < 0) return;
        bool is_whole = true;
        for (int i = 0; i < BEAT_BYTES; ++i) is_whole = is_whole && mask.byte(i) == 0xff;
        if (!is_whole) {
            const beat_t before = read_beat($port_names, base + held);
            for (int i = 0; i < BEAT_BYTES; ++i) byte(i, before.byte(i), uint8_t(~mask.byte(i)));
        }
        write_beat($port_names, base + held, beat);
        held = -1;
    }
};

// Results that leave per cycle: those of a pixel in a row or a column of the array, as many from each element as the plan
// lets leave a column.
constexpr int SUMS_PER_CYCLE = $sums_per_cycle;
constexpr int SIDE = (ROWS < COLS ? ROWS : COLS) * SUMS_PER_CYCLE;
constexpr int LANES = divisor(BEAT_ELEMENTS, SIDE < BEAT_ELEMENTS ? SIDE : BEAT_ELEMENTS);

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

    // Products of a tile: as many tiles as there must be, all alike, because the last one takes as long to load.
    int64_t depth_of_tile() const {
        const int64_t count = (depth() + TILE_DEPTH - 1) / TILE_DEPTH, each = (depth() + count - 1) / count;
        return (each + SIMD - 1) / SIMD * SIMD;
    }
};

int64_t tiles(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

int least_of(int64_t one, int64_t other) { return int(one < other ? one : other); }

// A tile along rows, columns and k: where it begins, and how much of it there is.
struct tile_t {
    int64_t group, row, col, k;
    int lines_a, lines_b, depth;
    bool is_first, is_last;  // along k

    tile_t(const call_t &call, int64_t of_group, int64_t of_row, int64_t of_col, int64_t of_k)
        : group(of_group), row(of_row), col(of_col), k(of_k) {
        const int64_t rows = call.is_transposed ? call.channels : call.pixels();
        const int64_t cols = call.is_transposed ? call.pixels() : call.channels;
        lines_a = least_of(TILE_ROWS, rows - row);
        lines_b = least_of(TILE_COLS, cols - col);
        depth = least_of(call.depth_of_tile(), call.depth() - k);
        is_first = k == 0;
        is_last = k + depth == call.depth();
    }
};

// Where a line of operands is in memory: runs of `length` elements, of which those from `low` to `high` are there and the
// others are zero points. A line of weights is one run. A line of pixels has a run for each row of the window; where its
// columns do not lie side by side in memory, one for each tap.
struct runs_t {
    bool is_pixels, is_dense;
    int32_t length, per_row, taps;  // of a run; runs of a row of the window, and taps of a run
    int64_t begin, low, high;       // of the run that is read now, in elements
    int32_t run, tap;               // row of the window, and its first tap
    int64_t x, y, image, group, line;

    void start(const call_t &call, bool of_pixels, int64_t of_group, int64_t first) {
        is_pixels = of_pixels;
        group = of_group;
        line = first;
        is_dense = call.dilation_width == 1 && call.apart_width == 1 && call.groups == 1;
        taps = is_dense ? call.kernel_width : 1;
        per_row = is_dense ? 1 : call.kernel_width;
        length = is_pixels ? taps * call.in_channels : int32_t(call.depth());
        x = first % call.out_width;
        y = first / call.out_width % call.out_height;
        image = first / call.out_width / call.out_height;
    }

    void next_line(const call_t &call) {
        ++line;
        if (++x < call.out_width) return;
        x = 0;
        if (++y < call.out_height) return;
        y = 0;
        ++image;
    }

    void go_to(const call_t &call, int32_t row, int32_t first_tap) {
        run = row;
        tap = first_tap;
        if (!is_pixels) {
            begin = (group * call.channels + line) * call.depth();
            low = 0;
            high = length;
            return;
        }
        const int64_t in_y = y * call.stride_height - call.pad_top + int64_t(row) * call.dilation_height;
        const int64_t in_x = x * call.stride_width - call.pad_left + int64_t(first_tap) * call.dilation_width;
        const int64_t row_at = in_y / call.apart_height, column = in_x / call.apart_width;
        const bool is_row = in_y >= 0 && in_y % call.apart_height == 0 && row_at < call.in_height;
        const bool is_column = in_x >= 0 && in_x % call.apart_width == 0 && column < call.in_width;
        begin = (((image * call.in_height + row_at) * call.in_width + column) * call.groups + group) * call.in_channels;
        int64_t outside_left = 0, inside = is_column ? 1 : 0;
        if (is_dense) {
            outside_left = in_x < 0 ? -in_x : 0;
            inside = taps < call.in_width - in_x ? taps : call.in_width - in_x;
        }
        low = is_row && outside_left < inside ? outside_left * call.in_channels : 0;
        high = is_row && outside_left < inside ? inside * call.in_channels : 0;
    }

    void next_run(const call_t &call) {
        const bool is_last = tap + taps >= call.kernel_width;
        go_to(call, is_last ? run + 1 : run, is_last ? 0 : tap + taps);
    }
};

// Load `lines` lines from `first` on, `depth` products from `k_first` on. In each cycle the elements of a word of each
// port that follow in a line are appended to those that wait, and a whole piece of them enters the banks. Step k of row r is in
// bank (r + k) % SIDE, so that a piece takes a bank for each group, and a step of all rows as well.
template <int SIDE, int FOLDS>
void load($port_arguments, element_t tile[SIDE][FOLDS * STEPS][SIMD], const call_t &call, bool is_pixels, int64_t base,
          int64_t group, int64_t first, int64_t k_first, int lines, int depth) {
    constexpr int GROUPS = groups_of(SIDE), PIECE = GROUPS * SIMD;
    runs_t runs;
    runs.start(call, is_pixels, group, first);
    const int32_t first_run = int32_t(k_first / runs.length), first_at = int32_t(k_first % runs.length);
    const int32_t first_row = first_run / runs.per_row, first_tap = first_run % runs.per_row;
    element_t waiting[2 * PIECE];
#pragma HLS ARRAY_PARTITION variable=waiting complete
    int line = 0, row = 0, fold = 0, k = 0, count = 0, step = 0, at = first_at;
    runs.go_to(call, first_row, first_tap);
piece:
    while (line < lines) {
#pragma HLS PIPELINE II=1
        const bool is_before = at < runs.low, is_inside = !is_before && at < runs.high;
        const int64_t place = runs.begin + at;
        int taken = is_before ? int(runs.low - at) : is_inside ? int(runs.high - at) : runs.length - at;
        if (taken > PIECE) taken = PIECE;
        if (is_inside && taken > BEAT_ELEMENTS - int(place % WORD_ELEMENTS)) {
            taken = BEAT_ELEMENTS - int(place % WORD_ELEMENTS);
        }
        if (taken > depth - k) taken = depth - k;
        beat_t beat = {};
        if (is_inside && taken > 0) {
            beat = read_words($port_names, base, place / WORD_ELEMENTS, (place + taken - 1) / WORD_ELEMENTS);
        }
    append:
        for (int e = 0; e < PIECE; ++e) {
#pragma HLS UNROLL
            const element_t zero = is_pixels ? element_t(call.in_zero) : element_t(0);
            if (e < taken) waiting[count + e] = is_inside ? beat.element((place + e) % BEAT_ELEMENTS) : zero;
        }
        k += taken;
        at += taken;
        count += taken;
        if (at == runs.length) {
            at = 0;
            if (k < depth) runs.next_run(call);
        }
        if (count < PIECE && k < depth) continue;
    bank:
        for (int n = 0; n < SIDE; ++n) {
#pragma HLS UNROLL
            const int g = (n + 2 * SIDE - row - step % SIDE) % SIDE;
            if (g < GROUPS && step + g < STEPS) {
            element:
                for (int s = 0; s < SIMD; ++s) {
#pragma HLS UNROLL
                    tile[n][fold * STEPS + step + g][s] = g * SIMD + s < count ? waiting[g * SIMD + s] : element_t(0);
                }
            }
        }
        const bool is_over = k == depth && count <= PIECE;
    forward:
        for (int e = 0; e < PIECE; ++e) {
#pragma HLS UNROLL
            waiting[e] = waiting[PIECE + e];
        }
        count = count > PIECE ? count - PIECE : 0;
        step += GROUPS;
        if (is_over) {
            k = count = step = 0;
            at = first_at;
            ++line;
            if (++row == SIDE) row = 0, ++fold;
            runs.next_line(call);
            if (line < lines) runs.go_to(call, first_row, first_tap);
        }
    }
}

// The array: every element adds SIMD products per cycle, in a register while a fold of ROWS x COLS sums lasts. The sums of
// earlier tiles along k wait in `kept`. Lines that a fold has too much of hold what an earlier tile left; their sums are
// not stored.
void compute(element_t a[ROWS][ROW_FOLDS * STEPS][SIMD], element_t b[COLS][COL_FOLDS * STEPS][SIMD],
             sum_t sums[ROWS][COLS][ROW_FOLDS][COL_FOLDS], const tile_t &tile) {
    static sum_t kept[ROWS][COLS][ROW_FOLDS * COL_FOLDS];
#pragma HLS ARRAY_PARTITION variable=kept dim=1 complete
#pragma HLS ARRAY_PARTITION variable=kept dim=2 complete
#pragma HLS BIND_STORAGE variable=kept type=ram_2p impl=$sums_storage
    sum_t total[ROWS][COLS];
#pragma HLS ARRAY_PARTITION variable=total complete dim=0
    const int row_folds = int(tiles(tile.lines_a, ROWS)), col_folds = int(tiles(tile.lines_b, COLS));
    const int steps = int(tiles(tile.depth, SIMD));
    int i = 0, j = 0, k = 0;
step:
    while (i < row_folds) {
#pragma HLS PIPELINE II=1
        const bool is_last = k + 1 == steps;
    row:
        for (int r = 0; r < ROWS; ++r) {
#pragma HLS UNROLL
        column:
            for (int c = 0; c < COLS; ++c) {
#pragma HLS UNROLL
                sum_t sum = k == 0 ? sum_t(0) : total[r][c];
            product:
                for (int s = 0; s < SIMD; ++s) {
#pragma HLS UNROLL
                    sum += sum_t(a[(r + k) % ROWS][i * STEPS + k][s]) * sum_t(b[(c + k) % COLS][j * STEPS + k][s]);
                }
                total[r][c] = sum;
                if (is_last) {
                    const int fold = i * COL_FOLDS + j;
                    const sum_t whole = (tile.is_first ? sum_t(0) : kept[r][c][fold]) + sum;
                    kept[r][c][fold] = whole;
                    sums[r][c][i][j] = whole;
                }
            }
        }
        k = is_last ? 0 : k + 1;
        if (is_last && ++j == col_folds) j = 0, ++i;
    }
}

// The other operands of results that follow in a pixel, where they lie side by side as well: a word of each port.
struct beside_t {
    bool is_used[MOST_OPERANDS], is_dense;
    beat_t beat[MOST_OPERANDS];
    int64_t place[MOST_OPERANDS];

    explicit beside_t(const program_t &program) : is_used(), is_dense(true) {
        for (int s = 0; s < int(program.steps_after); ++s) {
            const int k = int(program.step[s].operand);
            if (k < 0) continue;
            is_used[k] = true;
            is_dense = is_dense && program.operand[k].is_wide == 0 && program.operand[k].stride[3] == 1;
        }
    }

    // How many of `count` may be read at once.
    int most(const program_t &program, const int64_t at[4], int count) {
        for (int k = 0; k < MOST_OPERANDS; ++k) {
            if (!is_used[k]) continue;
            place[k] = program.operand[k].place(at);
            const int there = is_dense ? BEAT_ELEMENTS - int(place[k] % WORD_ELEMENTS) : 1;
            if (there < count) count = there;
        }
        return count;
    }

    void read($port_arguments, const program_t &program, int count) {
        for (int k = 0; k < MOST_OPERANDS; ++k) {
            if (!is_used[k]) continue;
            beat[k] = read_words($port_names, int64_t(program.operand[k].base), place[k] / WORD_ELEMENTS,
                                 (place[k] + count - 1) / WORD_ELEMENTS);
        }
    }

    value_t stepped(const program_t &program, const int16_t table[TABLE_ENTRIES], int e, value_t value) const {
        const value_t entered = value;
    step:
        for (int s = 0; s < MOST_STEPS; ++s) {
#pragma HLS UNROLL
            if (s >= int(program.steps_after)) continue;
            const int k = int(program.step[s].operand);
            value_t x = k == -1 ? entered : value_t(1);
            if (k >= 0) {
                const element_t other = beat[k].element((place[k] + e) % BEAT_ELEMENTS);
                x = value_t(value_t(other) - value_t(program.operand[k].zero));
            }
            value = applied(program.step[s], value, x, table);
        }
        return value;
    }
};

// Write the results of a tile, channels innermost. Parameters of a channel: its bias (int32) and its scale (float).
void store($port_arguments, sum_t sums[ROWS][COLS][ROW_FOLDS][COL_FOLDS], const call_t &call, const tile_t &tile,
           int64_t base, int64_t parameters, const program_t &program, const int16_t table[TABLE_ENTRIES]) {
    if (!tile.is_last) return;
    operands_t operands(program);
    beat_writer_t output(base);
    const int pixels_of_tile = call.is_transposed ? tile.lines_b : tile.lines_a;
    const int channels_of_tile = call.is_transposed ? tile.lines_a : tile.lines_b;
    const int64_t first_pixel = call.is_transposed ? tile.col : tile.row;
    const int64_t first_channel = tile.group * call.channels + (call.is_transposed ? tile.row : tile.col);
    static sum_t bias[TILE_ROWS > TILE_COLS ? TILE_ROWS : TILE_COLS];
    static float scale[TILE_ROWS > TILE_COLS ? TILE_ROWS : TILE_COLS];
#pragma HLS ARRAY_PARTITION variable=bias cyclic factor=LANES
#pragma HLS ARRAY_PARTITION variable=scale cyclic factor=LANES
    reader_t constants(parameters);
constant:
    for (int n = 0; n < channels_of_tile; ++n) {
#pragma HLS PIPELINE II=1
        bias[n] = sum_t(constants.value<int32_t>($port_names, 2 * (first_channel + n)));
        scale[n] = constants.value<float>($port_names, 2 * (first_channel + n) + 1);
    }
    beside_t beside(program);
    int p = 0, n = 0;
result:
    while (p < pixels_of_tile) {
#pragma HLS PIPELINE II=1
        const int64_t pixel = first_pixel + p, place = pixel * call.groups * call.channels + first_channel + n;
        const int64_t first[4] = {0, 0, pixel, first_channel + n};
        int taken = beside.most(program, first, LANES - n % LANES);
        if (taken > channels_of_tile - n) taken = channels_of_tile - n;
        if (taken > BEAT_ELEMENTS - int(place % BEAT_ELEMENTS)) taken = BEAT_ELEMENTS - int(place % BEAT_ELEMENTS);
        output.go_to($port_names, place / BEAT_ELEMENTS);
        if (beside.is_dense) beside.read($port_names, program, taken);
    lane:
        for (int e = 0; e < LANES; ++e) {
#pragma HLS UNROLL
            if (e >= taken) continue;
            const int i = call.is_transposed ? n + e : p, j = call.is_transposed ? p : n + e;
            const value_t value = epilogue(sums[i % ROWS][j % COLS][i / ROWS][j / COLS], bias[n + e],
                                           scale[n + e], call.out_zero, call.least, call.most);
            const int64_t at[4] = {0, 0, pixel, first_channel + n + e};
            const value_t result = beside.is_dense ? beside.stepped(program, table, e, value)
                                                   : stepped($port_names, program, table, operands, 0,
                                                             int(program.steps_after), at, value);
            output.element(place % BEAT_ELEMENTS + e, element_t(result));
        }
        n += taken;
        if (n == channels_of_tile) n = 0, ++p;
    }
    output.flush($port_names);
}

// Both operands of a tile, one after the other, because they share the ports.
void fetch($port_arguments, element_t a[ROWS][ROW_FOLDS * STEPS][SIMD], element_t b[COLS][COL_FOLDS * STEPS][SIMD],
           const call_t &call, const tile_t &tile, int64_t input, int64_t weights) {
    const bool turned = call.is_transposed;
    load<ROWS, ROW_FOLDS>($port_names, a, call, !turned, turned ? weights : input, tile.group, tile.row, tile.k,
                          tile.lines_a, tile.depth);
    load<COLS, COL_FOLDS>($port_names, b, call, turned, turned ? input : weights, tile.group, tile.col, tile.k,
                          tile.lines_b, tile.depth);
}

// One tile: the next operands load while these are used and the last sums leave, because each array has one writer and
// one reader.
void run_tile($port_arguments, const call_t &call, const tile_t &tile, int64_t input, int64_t weights,
              int64_t parameters, int64_t output, const program_t &program, const int16_t table[TABLE_ENTRIES]) {
#pragma HLS DATAFLOW
    static element_t a[ROWS][ROW_FOLDS * STEPS][SIMD];
    static element_t b[COLS][COL_FOLDS * STEPS][SIMD];
    static sum_t sums[ROWS][COLS][ROW_FOLDS][COL_FOLDS];
#pragma HLS ARRAY_PARTITION variable=a dim=1 complete
#pragma HLS ARRAY_RESHAPE variable=a dim=3 complete
#pragma HLS BIND_STORAGE variable=a type=ram_2p impl=$a_storage
#pragma HLS ARRAY_PARTITION variable=b dim=1 complete
#pragma HLS ARRAY_RESHAPE variable=b dim=3 complete
#pragma HLS BIND_STORAGE variable=b type=ram_2p impl=$b_storage
#pragma HLS ARRAY_PARTITION variable=sums dim=1 complete
#pragma HLS ARRAY_PARTITION variable=sums dim=2 complete
#pragma HLS ARRAY_PARTITION variable=sums dim=3 cyclic factor=SUMS_PER_CYCLE
#pragma HLS ARRAY_PARTITION variable=sums dim=4 cyclic factor=SUMS_PER_CYCLE
#pragma HLS BIND_STORAGE variable=sums type=ram_2p impl=$sums_storage
    fetch($port_names, a, b, call, tile, input, weights);
    compute(a, b, sums, tile);
    store($port_names, sums, call, tile, output, parameters, program, table);
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
                for (int64_t k = 0; k < call.depth(); k += call.depth_of_tile()) {
                    const tile_t tile(call, group, row, col, k);
                    run_tile($port_names, call, tile, input, weights, parameters, output, program, table);
                }
            }
        }
    }
}
