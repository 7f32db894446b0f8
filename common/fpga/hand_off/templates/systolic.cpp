
#ifdef __SYNTHESIS__
#include <hls_stream.h>
#else
#include <deque>
#endif

namespace {

constexpr int ROWS = $rows;  // of the array
constexpr int COLS = $cols;
constexpr int SIMD = $simd;  // products that an element adds per cycle
constexpr int SUMS = $sums_per_cycle;  // that leave a column per cycle
constexpr int TILE_ROWS = $tile_rows;  // on the chip
constexpr int TILE_COLS = $tile_cols;
constexpr int TILE_DEPTH = $tile_depth;
constexpr int ROW_FOLDS = TILE_ROWS / ROWS;
constexpr int COL_FOLDS = TILE_COLS / COLS;
constexpr int STEPS = TILE_DEPTH / SIMD;
constexpr int DRAIN = (ROWS + SUMS - 1) / SUMS;  // cycles in which the sums of a fold leave
constexpr int BEAT_CONSTANTS = BEAT_BYTES / 8;  // a bias and a scale have eight bytes

typedef $held_type held_t;  // a result before the steps behind it

constexpr int SEGMENTS = 3;  // parts of a line from which a piece takes its elements: of a run each, and within a beat
constexpr int WIDE = 8;      // groups that a piece may have though a beat has fewer

// Groups of SIMD elements that enter the banks of a side per cycle: one bank each, and no more than a beat has, or than
// the segments of a piece where a beat is narrow.
constexpr int groups_of(int banks) {
    return larger(1, smaller(banks, larger(BEAT_ELEMENTS / SIMD, smaller(SEGMENTS * BEAT_ELEMENTS / SIMD, WIDE))));
}

constexpr int PIECE = larger(groups_of(ROWS), groups_of(COLS)) * SIMD;
constexpr int LINES = $line_words;    // words of a port that the line buffer keeps

// Results that leave per cycle: of JOIN folds of one pixel, or of JOIN pixels, as many as banks give and a beat takes.
constexpr int JOIN = larger(1, smaller(SUMS, BEAT_ELEMENTS / COLS));
constexpr int LANES = smaller(JOIN * COLS, BEAT_ELEMENTS);

// The line buffer of windows: of each port the words that were read last, each in the place that its address gives. What
// windows share is read once, as long as it is kept. Each segment of a piece reads a copy of its own. Words are of a call,
// because other calls write the same memory.
struct lines_t {
    int64_t at[PORTS][LINES];
    uint32_t call[PORTS][LINES];
    word_t word[PORTS][LINES];

    lines_t() : at(), call(), word() {
#pragma HLS ARRAY_PARTITION variable=at dim=1 complete
#pragma HLS ARRAY_PARTITION variable=call dim=1 complete
#pragma HLS ARRAY_PARTITION variable=word dim=1 complete
    }

    bool has(int port, int64_t place, uint32_t of_call) const {
        return call[port][place % LINES] == of_call && at[port][place % LINES] == place;
    }
    void keep(int port, int64_t place, uint32_t of_call, const word_t &read) {
        at[port][place % LINES] = place;
        call[port][place % LINES] = of_call;
        word[port][place % LINES] = read;
    }
};

inline void keep_in_all(lines_t lines[SEGMENTS], int port, int64_t place, uint32_t of_call, const word_t &read) {
#pragma HLS INLINE
    for (int copy = 0; copy < SEGMENTS; ++copy) {
#pragma HLS UNROLL
        lines[copy].keep(port, place, of_call, read);
    }
}

// The words from `first` to `last` that are wanted, one of each port at most, each in the place of its port.
inline beat_t read_kept($port_arguments, int64_t base, int64_t first, int64_t last, const bool wanted[PORTS], int segment,
                        uint32_t of_call, lines_t lines[SEGMENTS]) {
#pragma HLS INLINE
    beat_t beat = {};
    int64_t at;
$kept_reads
    return beat;
}

#ifdef __SYNTHESIS__
template <typename item_t>
using fifo_t = hls::stream<item_t, 64>;
#else
template <typename item_t>
class fifo_t {
    std::deque<item_t> items;

public:
    bool empty() const { return items.empty(); }
    void write(const item_t &item) { items.push_back(item); }
    item_t read() {
        const item_t item = items.front();
        items.pop_front();
        return item;
    }
};
#endif

// Where the lines of an operand are: the windows of the pixels of a map, or the rows of a matrix, which is a map of one
// line with a window of one pixel. A line is a run for each row of its window; where the pixels of a row do not lie side
// by side, one for each tap.
struct source_t {
    int64_t base, channels, pixel_pitch, group_pitch;  // elements of a pixel, and from pixel to pixel
    int64_t in_height, in_width, out_height, out_width, kernel_height, kernel_width, stride_height, stride_width;
    int64_t dilation_height, dilation_width, pad_top, pad_left, apart_height, apart_width, zero;
    bool is_packed;

    bool is_dense() const { return pixel_pitch == channels && dilation_width == 1 && apart_width == 1; }
    int64_t taps() const { return is_dense() ? kernel_width : 1; }
    int64_t length() const { return taps() * channels; }

    // How many lines are read at once: as many as one beat has side by side, wherever it begins. None of packed weights.
    template <int GROUPS>
    int lines_at_once(int64_t depth) const {
        if (is_packed) return 0;
        int best = 1;
        int64_t fewest = -1;
        for (int lines = 1; lines <= GROUPS; ++lines) {
            if (GROUPS % lines) continue;
            const int64_t each = GROUPS / lines * SIMD, run = least_of(length(), depth), taken = least_of(each, run);
            const int64_t bits = pixel_pitch | group_pitch | length() | each | depth | WORD_ELEMENTS, unit = bits & -bits;
            const int64_t span = (lines - 1) * stride_width * pixel_pitch + taken + WORD_ELEMENTS - unit;
            if (lines > 1 && (apart_width > 1 || span > BEAT_ELEMENTS)) break;
            const int64_t runs = tiles(tiles(depth, run), SEGMENTS), pieces = tiles(depth, each);
            const int64_t trips = (runs < pieces ? pieces : runs) * tiles(out_width, lines);
            if (fewest < 0 || trips < fewest) fewest = trips, best = lines;
        }
        return best;
    }
};

// A product of pixels by channels of weights, `groups` times. The pixels of a convolution are gathered.
struct call_t {
    int64_t groups, channels, batch, parameters;
    bool is_transposed, columns_outside;
    float least, most;
    source_t pixels, weights;

    explicit call_t(const program_t &program) {
        const number_t *at = program.setting;
        const int64_t input = int64_t(*at++), of_weights = int64_t(*at++);
        parameters = int64_t(*at++);
        groups = int64_t(*at++);
        channels = int64_t(*at++);
        batch = int64_t(*at++);
        pixels.base = input;
        pixels.in_height = int64_t(*at++);
        pixels.in_width = int64_t(*at++);
        pixels.channels = int64_t(*at++);
        pixels.out_height = int64_t(*at++);
        pixels.out_width = int64_t(*at++);
        pixels.kernel_height = int64_t(*at++);
        pixels.kernel_width = int64_t(*at++);
        pixels.stride_height = int64_t(*at++);
        pixels.stride_width = int64_t(*at++);
        pixels.dilation_height = int64_t(*at++);
        pixels.dilation_width = int64_t(*at++);
        pixels.pad_top = int64_t(*at++);
        pixels.pad_left = int64_t(*at++);
        pixels.apart_height = int64_t(*at++);
        pixels.apart_width = int64_t(*at++);
        pixels.pixel_pitch = int64_t(*at++);
        pixels.group_pitch = int64_t(*at++);
        pixels.zero = int64_t(*at++);
        pixels.is_packed = false;
        least = float(*at++);
        most = float(*at++);
        is_transposed = *at++ != 0;
        columns_outside = *at++ != 0;
        weights = {of_weights, depth(), depth(), depth() * channels, 1, channels, 1, channels,
                   1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, *at++ != 0};
    }

    int64_t pixel_count() const { return batch * pixels.out_height * pixels.out_width; }
    int64_t depth() const { return pixels.kernel_height * pixels.kernel_width * pixels.channels; }
    int64_t rows() const { return is_transposed ? channels : pixel_count(); }
    int64_t cols() const { return is_transposed ? pixel_count() : channels; }
    const source_t &side_a() const { return is_transposed ? weights : pixels; }
    const source_t &side_b() const { return is_transposed ? pixels : weights; }
    int64_t deep() const { return tiles(depth(), depth_of_tile()); }

    // Tiles of a call are alike, because a phase lasts as long as the largest of those that are in it.
    int64_t depth_of_tile() const { return alike(depth(), TILE_DEPTH, SIMD); }
    int64_t rows_of_tile() const { return alike(rows(), TILE_ROWS, ROWS); }
    int64_t cols_of_tile() const { return alike(cols(), TILE_COLS, COLS); }
    static int64_t alike(int64_t whole, int64_t most, int64_t unit) {
        return tiles(tiles(whole, tiles(whole, most)), unit) * unit;
    }
    int64_t packed_depth() const { return tiles(depth(), SIMD) * SIMD; }
    int64_t tile_count() const {
        return groups * tiles(rows(), rows_of_tile()) * tiles(cols(), cols_of_tile()) * deep();
    }
};

// A tile along rows, columns and k: where it begins, and how much of it there is.
struct tile_t {
    int64_t group, row, col, k;
    int rows, cols, depth;
    bool is_first, is_last;  // along k

    tile_t() : group(-1), row(-1), col(-1), k(-1), rows(0), cols(0), depth(0), is_first(false), is_last(false) {}

    tile_t(const call_t &call, int64_t index) {
        const int64_t along_rows = tiles(call.rows(), call.rows_of_tile()), along_cols = tiles(call.cols(), call.cols_of_tile());
        const int64_t inner = call.columns_outside ? along_rows : along_cols;
        const int64_t outer = call.columns_outside ? along_cols : along_rows;
        const int64_t of_k = index % call.deep(), of_inner = index / call.deep() % inner;
        const int64_t of_outer = index / call.deep() / inner % outer;
        group = index / call.deep() / inner / outer;
        row = (call.columns_outside ? of_inner : of_outer) * call.rows_of_tile();
        col = (call.columns_outside ? of_outer : of_inner) * call.cols_of_tile();
        k = of_k * call.depth_of_tile();
        rows = least_of(call.rows_of_tile(), call.rows() - row);
        cols = least_of(call.cols_of_tile(), call.cols() - col);
        depth = least_of(call.depth_of_tile(), call.depth() - k);
        is_first = k == 0;
        is_last = k + depth == call.depth();
    }

    // What it needs that the tile before did not have.
    bool has_other_rows(const tile_t &before) const {
        return group != before.group || k != before.k || row != before.row;
    }
    bool has_other_cols(const tile_t &before) const {
        return group != before.group || k != before.k || col != before.col;
    }
    bool has_other_channels(const call_t &call, const tile_t &before) const {
        return group != before.group || (call.is_transposed ? row != before.row : col != before.col);
    }
    int channels(const call_t &call) const { return call.is_transposed ? rows : cols; }
    int64_t first_channel(const call_t &call) const { return call.is_transposed ? row : col; }
    int pixels(const call_t &call) const { return call.is_transposed ? cols : rows; }
    int64_t first_pixel(const call_t &call) const { return call.is_transposed ? col : row; }
};

// --- what the processes tell each other ---------------------------------------------------------------------------------

// Elements of some lines that follow each other: `taken` of each, and room for equally many of all. Of packed weights, a
// step of some lines.
struct piece_t {
    element_t value[PIECE];
    int taken, lines;
    bool ends_lines, ends_fold, ends_side;
};

struct constants_t {
    sum_t bias[BEAT_CONSTANTS];
    float scale[BEAT_CONSTANTS];
    int first, count;
    bool is_last;
};

struct beside_t {
    value_t value[LANES];
};

struct results_t {
    element_t value[LANES];
    int64_t place;
    int count;
};

// Where channels are rows: into how many parts the columns of the banks are divided. All channels of a pixel take one, so
// as many neighbouring pixels are in banks of their own; 1 where a pixel alone has too many.
inline int parts_of(int channels) {
    const int shifts = (channels - 1) / ROWS * DRAIN + (channels - 1) % ROWS / SUMS + 1;
    for (int parts = COLS; parts > 1; --parts) {
        if (COLS % parts == 0 && COLS / parts >= shifts) return parts;
    }
    return 1;
}

// The results of a tile in the order in which they leave, some of them side by side in memory.
struct walk_t {
    int pixels, channels, pixel, channel, fold, together;  // pixels of a fold, and of a group
    bool along_channels, is_joined, is_narrow;

    walk_t() : pixels(0), channels(0), pixel(0), channel(0), fold(1), together(1), along_channels(), is_joined(), is_narrow() {}

    walk_t(const call_t &call, const tile_t &tile, const view_t &result, bool one_by_one)
        : pixels(tile.is_last ? tile.pixels(call) : 0), channels(tile.channels(call)), pixel(0), channel(0),
          fold(call.is_transposed ? COLS : ROWS), together(JOIN), along_channels(result.stride[3] == 1), is_joined(false),
          is_narrow(one_by_one) {
        if (call.is_transposed) {
            together = !along_channels ? smaller(COLS, LANES) : larger(1, least_of(LANES / channels, parts_of(channels)));
        } else if (channels > COLS) {
            together = along_channels ? 1 : JOIN;
        }
        is_joined = along_channels && together > 1 && result.stride[2] == channels;
    }

    bool is_over() const { return pixel >= pixels || channel >= channels; }

    // Pixels of a fold whose results are in as many banks.
    int joined() const { return least_of(least_of(together - pixel % fold % together, fold - pixel % fold), pixels - pixel); }

    int count() const {
        if (is_narrow) return 1;
        if (is_joined) return joined() * channels;
        return along_channels ? least_of(LANES, channels - channel) : joined();
    }

    int pixel_of(int e) const { return is_joined ? pixel + (channel + e) / channels : along_channels ? pixel : pixel + e; }
    int channel_of(int e) const { return is_joined ? (channel + e) % channels : along_channels ? channel + e : channel; }

    void next() {
        const int taken = count();
        if (along_channels) {
            pixel += (channel + taken) / channels;
            channel = (channel + taken) % channels;
        } else {
            pixel += taken;
            if (pixel >= pixels && channel + 1 < channels) pixel = 0, ++channel;
        }
    }
};

inline int64_t place_of(const view_t &view, const call_t &call, const tile_t &tile, int pixel, int channel) {
    const int64_t at[4] = {0, tile.group, tile.first_pixel(call) + pixel, tile.first_channel(call) + channel};
    return view.place(at);
}

// The tensors that the steps behind the sums read. They are read as results leave where they lie like the result.
struct used_t {
    int operand[MOST_OPERANDS], count;
    bool is_narrow;

    explicit used_t(const program_t &program) : operand(), count(0), is_narrow(false) {
        for (int k = 0; k < MOST_OPERANDS; ++k) {
            bool is_used = false;
            for (int s = 0; s < int(program.steps_after); ++s) is_used |= int(program.step[s].operand) == k;
            if (!is_used) continue;
            operand[count++] = k;
            const view_t &view = program.operand[k];
            for (int axis = 1; axis < 4; ++axis) is_narrow |= view.stride[axis] != program.result.stride[axis];
            is_narrow |= view.is_wide != 0;
        }
    }
};

// --- what is read -------------------------------------------------------------------------------------------------------

// Read `lines` lines from `first` on, `depth` products from `k_first` on.
template <int SIDE>
void read_lines($port_arguments, const source_t &source, int64_t group, int64_t first, int64_t k_first, int lines,
                int depth, int64_t depth_of_tile, uint32_t of_call, lines_t kept[SEGMENTS], fifo_t<piece_t> &pieces) {
    constexpr int GROUPS = groups_of(SIDE);
    const int at_once = source.lines_at_once<GROUPS>(depth_of_tile), each = GROUPS / at_once * SIMD;
    const int64_t length = source.length(), per_row = source.kernel_width / source.taps();
    const int64_t pitch = source.stride_width * source.pixel_pitch;
    const int first_run = int(k_first / length), first_at = int(k_first % length);
    int64_t x = first % source.out_width, y = first / source.out_width % source.out_height;
    int64_t image = first / source.out_width / source.out_height;
    int line = 0, row = 0, k = 0, run = first_run, at = first_at;
piece:
    while (line < lines) {
#pragma HLS PIPELINE II=1
        const int together = least_of(least_of(at_once, lines - line), least_of(SIDE - row, source.out_width - x));
        piece_t piece;
        int filled = 0;
        for (int segment = 0; segment < SEGMENTS; ++segment) {
#pragma HLS UNROLL
            if (k == depth || filled == each) continue;
            const int64_t tap = run % per_row * source.taps(), window_row = run / per_row;
            const int64_t in_y = y * source.stride_height - source.pad_top + window_row * source.dilation_height;
            const int64_t in_x = x * source.stride_width - source.pad_left + tap * source.dilation_width;
            const int64_t up = in_y / source.apart_height, across = in_x / source.apart_width;
            const bool is_row = in_y >= 0 && in_y % source.apart_height == 0 && up < source.in_height;
            const bool is_apart = in_x % source.apart_width != 0;
            const int64_t begin = group * source.group_pitch +
                                  ((image * source.in_height + up) * source.in_width + across) * source.pixel_pitch;
            int taken = least_of(least_of(each - filled, length - at), depth - k);
            // Of each line, the elements of the run from `low` to `high` are in the map; the others are zero points.
            int64_t low[GROUPS], high[GROUPS], from = 0, to = -1;
            bool wanted[PORTS] = {};
            for (int i = 0; i < GROUPS; ++i) {
#pragma HLS UNROLL
                const int64_t column = across + i * source.stride_width, before = column < 0 ? -column : 0;
                const int64_t inside = least_of(source.taps(), source.in_width - column);
                const bool is_there = i < together && is_row && !is_apart && before < inside;
                low[i] = is_there ? before * source.channels : 0;
                high[i] = is_there ? inside * source.channels : 0;
                if (low[i] < at) low[i] = at;
                if (at_once == 1 && i == 0 && high[i] > low[i]) {  // a single line may begin anywhere in a beat
                    const int64_t room = BEAT_ELEMENTS - (begin + low[i]) % WORD_ELEMENTS;
                    taken = least_of(taken, low[i] - at + room);
                }
                if (high[i] > at + taken) high[i] = at + taken;
                if (high[i] <= low[i]) continue;
                if (to < 0) from = begin + i * pitch + low[i];
                to = begin + i * pitch + high[i] - 1;
                const int64_t first_word = (begin + i * pitch + low[i]) / WORD_ELEMENTS, last_word = to / WORD_ELEMENTS;
                for (int port = 0; port < PORTS; ++port) {
#pragma HLS UNROLL
                    wanted[port] |= (port + PORTS - first_word % PORTS) % PORTS <= last_word - first_word;
                }
            }
            beat_t beat = {};
            if (to >= 0) {
                beat = read_kept($port_names, source.base, from / WORD_ELEMENTS, to / WORD_ELEMENTS, wanted, segment,
                                 of_call, kept);
            }
            for (int e = 0; e < GROUPS * SIMD; ++e) {
#pragma HLS UNROLL
                const int i = e / each, of_run = at + e % each - filled;
                if (e % each < filled || e % each >= filled + taken) continue;
                const bool is_there = of_run >= low[i] && of_run < high[i];
                const int64_t place = (begin + i * pitch + of_run) % BEAT_ELEMENTS;
                piece.value[e] = is_there ? beat.element(place) : element_t(source.zero);
            }
            k += taken;
            at += taken;
            filled += taken;
            if (at == length) at = 0, ++run;
        }
        piece.taken = filled;
        piece.lines = together;
        piece.ends_lines = k == depth;
        piece.ends_fold = false;
        piece.ends_side = k == depth && line + together == lines;
        pieces.write(piece);
        if (k < depth) continue;
        k = 0;
        run = first_run;
        at = first_at;
        line += together;
        row = row + together == SIDE ? 0 : row + together;
        x += together;
        if (x < source.out_width) continue;
        x = 0;
        if (++y < source.out_height) continue;
        y = 0;
        ++image;
    }
}

// Read packed weights: fold by fold, step by step, line by line.
template <int SIDE>
void read_packed($port_arguments, int64_t base, int64_t place, int lines, int depth, fifo_t<piece_t> &pieces) {
    const int steps = int(tiles(depth, SIMD));
    int fold_lines = smaller(lines, SIDE), left = lines, line = 0, step = 0;
packed:
    while (left > 0) {
#pragma HLS PIPELINE II=1
        const int room = int((BEAT_ELEMENTS - place % WORD_ELEMENTS) / SIMD);
        const int taken = least_of(least_of(room, PIECE / SIMD), fold_lines - line), count = taken * SIMD;
        const beat_t beat = read_words($port_names, base, place / WORD_ELEMENTS, (place + count - 1) / WORD_ELEMENTS);
        piece_t piece;
        for (int e = 0; e < PIECE; ++e) {
#pragma HLS UNROLL
            piece.value[e] = e < count ? beat.element((place + e) % BEAT_ELEMENTS) : element_t(0);
        }
        place += count;
        line += taken;
        piece.taken = SIMD;
        piece.lines = taken;
        piece.ends_lines = line == fold_lines;
        if (piece.ends_lines) line = 0, ++step;
        piece.ends_fold = step == steps;
        if (piece.ends_fold) {
            step = 0;
            left -= fold_lines;
            fold_lines = smaller(left, SIDE);
        }
        piece.ends_side = left == 0;
        pieces.write(piece);
    }
}

template <int SIDE>
void read_side($port_arguments, const call_t &call, const source_t &source, const tile_t &tile, int64_t first, int lines,
               uint32_t of_call, lines_t kept[SEGMENTS], fifo_t<piece_t> &pieces) {
    if (source.is_packed) {
        const int64_t place = (tile.group * source.out_width + first) * call.packed_depth() + lines * tile.k;
        read_packed<SIDE>($port_names, source.base, place, lines, tile.depth, pieces);
    } else {
        read_lines<SIDE>($port_names, source, tile.group, first, tile.k, lines, tile.depth, call.depth_of_tile(), of_call,
                         kept, pieces);
    }
}

// The constants of a tile's channels: {int32 bias, float scale} of each.
void read_constants($port_arguments, const call_t &call, const tile_t &tile, fifo_t<constants_t> &constants) {
    int64_t at = 8 * (tile.group * call.channels + tile.first_channel(call));
    int first = 0;
    const int channels = tile.channels(call);
constant:
    while (first < channels) {
#pragma HLS PIPELINE II=1
        const int count = least_of(channels - first, (BEAT_BYTES - at % WORD_BYTES) / 8);
        const beat_t beat = read_words($port_names, call.parameters, at / WORD_BYTES, (at + 8 * count - 1) / WORD_BYTES);
        constants_t item;
        for (int n = 0; n < BEAT_CONSTANTS; ++n) {
#pragma HLS UNROLL
            const int64_t byte = (at + 8 * n) % BEAT_BYTES;
            item.bias[n] = sum_t(beat.value<int32_t>(byte / 4));
            item.scale[n] = beat.value<float>(byte / 4 + 1);
        }
        item.first = first;
        item.count = count;
        first += count;
        at += 8 * count;
        item.is_last = first == channels;
        constants.write(item);
    }
}

// The other operands of the steps behind a tile's sums, in the order in which its results leave.
void read_beside($port_arguments, const call_t &call, const tile_t &tile, const program_t &program,
                 operands_t &operands, const used_t &used, fifo_t<beside_t> &beside) {
    walk_t walk(call, tile, program.result, used.is_narrow);
    int n = 0;
beside:
    while (used.count && !walk.is_over()) {
#pragma HLS PIPELINE II=1
        const view_t &view = program.operand[used.operand[n]];
        const int64_t place = place_of(view, call, tile, walk.pixel, walk.channel);
        beside_t item;
        if (used.is_narrow) {
            const int64_t at[4] = {0, tile.group, tile.first_pixel(call) + walk.pixel,
                                   tile.first_channel(call) + walk.channel};
            item.value[0] = operands.value($port_names, program, used.operand[n], at);
        } else {
            const int64_t first = place / WORD_ELEMENTS, last = (place + walk.count() - 1) / WORD_ELEMENTS;
            const beat_t beat = read_words($port_names, int64_t(view.base), first, least_of(last, first + PORTS - 1));
            const int there = int((first + PORTS) * WORD_ELEMENTS - place);  // a group may end in a second beat
            beat_t rest = {};
            if (last >= first + PORTS) rest = read_words($port_names, int64_t(view.base), first + PORTS, last);
            for (int e = 0; e < LANES; ++e) {
#pragma HLS UNROLL
                const int64_t of_beat = (place + e) % BEAT_ELEMENTS;
                const element_t other = e < there ? beat.element(of_beat) : rest.element(of_beat);
                item.value[e] = value_t(value_t(other) - value_t(view.zero));
            }
        }
        beside.write(item);
        if (++n < used.count) continue;
        n = 0;
        walk.next();
    }
}

// Everything, in the order in which it is used. A tile is stored two phases after it is loaded.
void read_all($port_arguments, const call_t &call, const program_t &program, fifo_t<piece_t> &pieces,
              fifo_t<constants_t> &constants, fifo_t<beside_t> &beside) {
    const used_t used(program);
    operands_t operands(program);
    static lines_t kept[SEGMENTS];
    static uint32_t of_call = 0;
#pragma HLS ARRAY_PARTITION variable=kept complete
    ++of_call;
    tile_t before;
phase_of_reads:
    for (int64_t phase = 0; phase < call.tile_count() + 2; ++phase) {
        if (phase >= 2) read_beside($port_names, call, tile_t(call, phase - 2), program, operands, used, beside);
        if (phase >= call.tile_count()) continue;
        const tile_t tile(call, phase);
        if (tile.has_other_rows(before)) {
            read_side<ROWS>($port_names, call, call.side_a(), tile, tile.row, tile.rows, of_call, kept, pieces);
        }
        if (tile.has_other_cols(before)) {
            read_side<COLS>($port_names, call, call.side_b(), tile, tile.col, tile.cols, of_call, kept, pieces);
        }
        if (tile.has_other_channels(call, before)) read_constants($port_names, call, tile, constants);
        before = tile;
    }
}

// --- what is computed ---------------------------------------------------------------------------------------------------

// One side of the operand buffers. Step k of line r is in bank (r + k * at_once) % SIDE, so that the lines of a piece take a
// bank for each group of SIMD elements, and a step of all lines as well. That of packed weights is in bank r.
template <int SIDE, int FOLDS>
struct filling_t {
    static constexpr int GROUPS = groups_of(SIDE);
    element_t waiting[2 * GROUPS * SIMD];
    int at_once, row, fold, step, count, lines, half;
    bool is_over, has_rest, ends_side;

    explicit filling_t(int lines_at_once)
        : waiting(), at_once(lines_at_once), row(0), fold(0), step(0), count(0), lines(0), half(0), is_over(true), has_rest(false), ends_side(false) {}

    void start() {
        half = 1 - half;
        row = fold = step = count = 0;
        is_over = has_rest = false;
    }

    // Append a piece, or nothing where a rest waits, and let whole groups enter the banks.
    void take(fifo_t<piece_t> &pieces, element_t tile[SIDE][2][FOLDS * STEPS][SIMD]) {
#pragma HLS INLINE
        if (at_once == 0) {
            const piece_t piece = pieces.read();
            for (int n = 0; n < SIDE; ++n) {
#pragma HLS UNROLL
                if (n < row || n >= row + piece.lines) continue;
                for (int s = 0; s < SIMD; ++s) {
#pragma HLS UNROLL
                    tile[n][half][fold * STEPS + step][s] = piece.value[(n - row) * SIMD + s];
                }
            }
            row = piece.ends_lines ? 0 : row + piece.lines;
            if (piece.ends_lines) ++step;
            if (piece.ends_fold) step = 0, ++fold;
            is_over = piece.ends_side;
            return;
        }
        const int each = GROUPS / at_once * SIMD;
        if (!has_rest) {
            const piece_t piece = pieces.read();
            for (int e = 0; e < GROUPS * SIMD; ++e) {
#pragma HLS UNROLL
                if (e % each < piece.taken) waiting[e / each * 2 * each + count + e % each] = piece.value[e];
            }
            count += piece.taken;
            lines = piece.lines;
            has_rest = piece.ends_lines;
            ends_side = piece.ends_side;
        }
        if (count < each && !has_rest) return;
        for (int n = 0; n < SIDE; ++n) {
#pragma HLS UNROLL
            const int index = (n + 2 * SIDE - row - step * at_once % SIDE) % SIDE, i = index % at_once, g = index / at_once;
            if (index >= GROUPS || i >= lines || step + g >= STEPS) continue;
            for (int s = 0; s < SIMD; ++s) {
#pragma HLS UNROLL
                const int e = g * SIMD + s;
                tile[n][half][fold * STEPS + step + g][s] = e < count ? waiting[i * 2 * each + e] : element_t(0);
            }
        }
        for (int e = 0; e < GROUPS * SIMD; ++e) {
#pragma HLS UNROLL
            const int from = e / each * 2 * each + e % each;
            waiting[from] = waiting[from + each];
        }
        step += each / SIMD;
        if (has_rest && count <= each) {
            has_rest = false;
            step = count = 0;
            row += lines;
            if (row == SIDE) row = 0, ++fold;
            is_over = ends_side;
        } else {
            count -= each;
        }
    }
};

// Where a result waits: rows leave SUMS at a time, and what lies side by side in memory is in banks of its own.
struct bank_t {
    int lane, column, address;

    // `parts`: of the tile where its channels are rows, else 0.
    bank_t(int parts, int row, int col) {
        const int shift = row / ROWS * DRAIN + row % ROWS / SUMS, of_col = col / COLS, lane_of_row = row % ROWS % SUMS;
        lane = parts ? lane_of_row : (lane_of_row + of_col) % SUMS;
        const int at = col % COLS;
        column = parts ? (at % parts * (COLS / parts) + at / parts + shift) % COLS : at;
        address = shift * COL_FOLDS + of_col;
    }
};

// Each cycle takes at most one piece from memory, computes a step, moves SUMS rows of sums of the fold before, and lets a
// group of results go. Tiles are loaded, computed and stored at the same time, each in its half of every buffer.
void compute_all(const call_t &call, const program_t &program, const int16_t table[TABLE_ENTRIES],
                 fifo_t<piece_t> &pieces, fifo_t<constants_t> &constants, fifo_t<beside_t> &beside,
                 fifo_t<results_t> &results) {
    static element_t a[ROWS][2][ROW_FOLDS * STEPS][SIMD];
    static element_t b[COLS][2][COL_FOLDS * STEPS][SIMD];
    static sum_t kept[ROWS][COLS][ROW_FOLDS * COL_FOLDS];  // of earlier tiles along k
    static held_t held[SUMS][COLS][2][ROW_FOLDS * DRAIN * COL_FOLDS];
    static sum_t bias[3][TILE_ROWS > TILE_COLS ? TILE_ROWS : TILE_COLS];
    static float scale[3][TILE_ROWS > TILE_COLS ? TILE_ROWS : TILE_COLS];
    sum_t total[ROWS][COLS] = {}, leaving[ROWS][COLS] = {};
#pragma HLS ARRAY_PARTITION variable=a dim=1 complete
#pragma HLS ARRAY_RESHAPE variable=a dim=4 complete
#pragma HLS BIND_STORAGE variable=a type=ram_2p impl=$a_storage
#pragma HLS ARRAY_PARTITION variable=b dim=1 complete
#pragma HLS ARRAY_RESHAPE variable=b dim=4 complete
#pragma HLS BIND_STORAGE variable=b type=ram_2p impl=$b_storage
#pragma HLS ARRAY_PARTITION variable=kept dim=1 complete
#pragma HLS ARRAY_PARTITION variable=kept dim=2 complete
#pragma HLS BIND_STORAGE variable=kept type=ram_2p impl=$sums_storage
#pragma HLS ARRAY_PARTITION variable=held dim=1 complete
#pragma HLS ARRAY_PARTITION variable=held dim=2 complete
#pragma HLS BIND_STORAGE variable=held type=ram_2p impl=$results_storage
#pragma HLS ARRAY_PARTITION variable=bias dim=1 complete
#pragma HLS ARRAY_PARTITION variable=bias dim=2 cyclic factor=COLS
#pragma HLS ARRAY_PARTITION variable=scale dim=1 complete
#pragma HLS ARRAY_PARTITION variable=scale dim=2 cyclic factor=COLS
#pragma HLS ARRAY_PARTITION variable=total complete dim=0
#pragma HLS ARRAY_PARTITION variable=leaving complete dim=0
    const used_t used(program);
    const int64_t count = call.tile_count();
    filling_t<ROWS, ROW_FOLDS> side_a(call.side_a().lines_at_once<groups_of(ROWS)>(call.depth_of_tile()));
    filling_t<COLS, COL_FOLDS> side_b(call.side_b().lines_at_once<groups_of(COLS)>(call.depth_of_tile()));
    tile_t loading, computing, storing;
    int slot = 0, next_slot = 0;     // of the constants of the tile that is computed, and of the next
    int half_a = 0, half_b = 0;      // of the operands that are used
    int filled = 0, emptied = 0;     // half of the results that is filled, and that is stored
    int left = 0, out_i = 0, out_j = 0, out_slot = 0, out_half = 0, out_parts = 0;  // of the fold that leaves: cycles, place, buffers
    beside_t other[MOST_OPERANDS];
phase:
    for (int64_t phase = 0; phase < count + 2; ++phase) {
        storing = computing;
        emptied = filled;
        if (phase > 0 && computing.is_last) filled = 1 - filled;
        computing = loading;
        slot = next_slot;
        half_a = side_a.half;
        half_b = side_b.half;
        bool needs_constants = false;
        if (phase < count) {
            loading = tile_t(call, phase);
            if (loading.has_other_rows(computing)) side_a.start();
            if (loading.has_other_cols(computing)) side_b.start();
            needs_constants = loading.has_other_channels(call, computing);
            if (needs_constants) next_slot = slot == 2 ? 0 : slot + 1;
        } else {
            loading = tile_t();
        }
        walk_t walk;
        if (storing.group >= 0) walk = walk_t(call, storing, program.result, used.is_narrow);
        const int stored_rows = storing.rows, stored_cols = storing.cols;
        const int stored_parts = call.is_transposed && stored_rows ? parts_of(stored_rows) : 0;
        const int parts = call.is_transposed && computing.rows ? parts_of(computing.rows) : 0;
        const int row_folds = int(tiles(computing.rows, ROWS)), col_folds = int(tiles(computing.cols, COLS));
        const int steps = int(tiles(computing.depth, SIMD));
        int i = 0, j = 0, k = 0, had = 0;
        bool is_computed = computing.group < 0;
    cycle:
        while (!(walk.is_over() && is_computed && side_a.is_over && side_b.is_over && !needs_constants)) {
#pragma HLS PIPELINE II=1
            bool has_taken = false;
            // A group of results, with what the steps behind it read: one operand per cycle.
            if (!walk.is_over()) {
                if (had < used.count && !beside.empty()) {
                    other[used.operand[had++]] = beside.read();
                    has_taken = true;
                }
                const int taken = walk.count(), pixel = walk.pixel_of(taken - 1), channel = walk.channel_of(taken - 1);
                const int row = call.is_transposed ? channel : pixel, col = call.is_transposed ? pixel : channel;
                const bool leaves = left > 0 && out_half == emptied && row / ROWS == (stored_rows - 1) / ROWS && col / COLS == (stored_cols - 1) / COLS;
                if (had == used.count && (!leaves || row % ROWS < (DRAIN - left) * SUMS)) {
                    results_t group = {};
                    for (int e = 0; e < LANES; ++e) {
#pragma HLS UNROLL
                        if (e >= taken) continue;
                        const int p = walk.pixel_of(e), n = walk.channel_of(e);
                        const bank_t bank(stored_parts, call.is_transposed ? n : p, call.is_transposed ? p : n);
                        const value_t entered = value_t(held[bank.lane][bank.column][emptied][bank.address]);
                        value_t value = entered;
                        for (int s = 0; s < MOST_STEPS; ++s) {
#pragma HLS UNROLL
                            if (s >= int(program.steps_after)) continue;
                            const int of = int(program.step[s].operand);
                            const value_t x = of >= 0 ? other[of].value[e] : of == -1 ? entered : value_t(1);
                            value = applied(program.step[s], value, x, table);
                        }
                        group.value[e] = element_t(value);
                    }
                    group.place = place_of(program.result, call, storing, walk.pixel, walk.channel);
                    group.count = taken;
                    results.write(group);
                    had = 0;
                    walk.next();
                }
            }
            // Sums of the fold before become results.
            if (left > 0) {
                const int shift = DRAIN - left;
                for (int g = 0; g < SUMS; ++g) {
#pragma HLS UNROLL
                    const int r = shift * SUMS + g;
                    for (int c = 0; c < COLS && r < ROWS; ++c) {
#pragma HLS UNROLL
                        const int row = out_i * ROWS + r, col = out_j * COLS + c, n = call.is_transposed ? row : col;
                        const bank_t bank(out_parts, row, col);
                        held[bank.lane][bank.column][out_half][bank.address] = held_t(
                            epilogue(leaving[r][c], bias[out_slot][n], scale[out_slot][n], int32_t(program.result.zero), call.least, call.most));
                    }
                }
                --left;
            }
            // A step of the array; the last one of a fold waits for the sums of the fold before.
            if (!is_computed && !(k + 1 == steps && computing.is_last && left > 0)) {
                const bool is_last = k + 1 == steps;
                for (int r = 0; r < ROWS; ++r) {
#pragma HLS UNROLL
                    for (int c = 0; c < COLS; ++c) {
#pragma HLS UNROLL
                        sum_t sum = k == 0 ? sum_t(0) : total[r][c];
                        const element_t *one = a[(r + k * side_a.at_once) % ROWS][half_a][i * STEPS + k];
                        const element_t *other_one = b[(c + k * side_b.at_once) % COLS][half_b][j * STEPS + k];
                        for (int s = 0; s < SIMD; ++s) {
#pragma HLS UNROLL
                            sum += sum_t(one[s]) * sum_t(other_one[s]);
                        }
                        total[r][c] = sum;
                        if (!is_last) continue;
                        const int fold = i * COL_FOLDS + j;
                        const sum_t whole = (computing.is_first ? sum_t(0) : kept[r][c][fold]) + sum;
                        kept[r][c][fold] = whole;
                        leaving[r][c] = whole;
                    }
                }
                k = is_last ? 0 : k + 1;
                if (is_last) {
                    if (computing.is_last) left = DRAIN, out_i = i, out_j = j, out_slot = slot, out_half = filled, out_parts = parts;
                    if (++j == col_folds) j = 0, ++i;
                    is_computed = i == row_folds;
                }
            }
            // A piece from memory.
            if (has_taken) continue;
            if (!side_a.is_over) {
                if (side_a.has_rest || !pieces.empty()) side_a.take(pieces, a);
            } else if (!side_b.is_over) {
                if (side_b.has_rest || !pieces.empty()) side_b.take(pieces, b);
            } else if (needs_constants && !constants.empty()) {
                const constants_t item = constants.read();
                for (int n = 0; n < BEAT_CONSTANTS; ++n) {
#pragma HLS UNROLL
                    if (n >= item.count) continue;
                    bias[next_slot][item.first + n] = item.bias[n];
                    scale[next_slot][item.first + n] = item.scale[n];
                }
                needs_constants = !item.is_last;
            }
        }
    }
    results_t end = {};
    results.write(end);
}

// --- what is written ----------------------------------------------------------------------------------------------------

void write_all($port_arguments, const program_t &program, fifo_t<results_t> &results) {
    writer_of_beats_t writer(int64_t(program.result.base));
    results_t group = results.read();
    int done = 0;
result:
    while (group.count > 0) {
#pragma HLS PIPELINE II=1
        const int64_t place = group.place + done, beat = place / BEAT_ELEMENTS;
        if (beat != writer.held) writer.flush($port_names);
        writer.held = beat;
        const int taken = least_of(group.count - done, BEAT_ELEMENTS - place % BEAT_ELEMENTS);
        for (int e = 0; e < LANES; ++e) {
#pragma HLS UNROLL
            if (e >= done && e < done + taken) writer.element((group.place + e) % BEAT_ELEMENTS, group.value[e]);
        }
        done += taken;
        if (done == group.count) group = results.read(), done = 0;
    }
    writer.flush($port_names);
}

// The processes of a call run at the same time.
void run($port_arguments, const call_t &call, const program_t &program, const int16_t table[TABLE_ENTRIES]) {
#pragma HLS DATAFLOW
    fifo_t<piece_t> pieces;
    fifo_t<constants_t> constants;
    fifo_t<beside_t> beside;
    fifo_t<results_t> results;
    read_all($port_names, call, program, pieces, constants, beside);
    compute_all(call, program, table, pieces, constants, beside, results);
    write_all($port_names, program, results);
}

}  // namespace

// One call; `steps` is a program, in words of a port, and so are all bases. All tensors begin at port 0. Settings, in this
// order: bases of the input, of the weights and of the constants; groups and the channels of each; of the input batch,
// height, width and channels of a group; height and width of the result and of the window; strides, dilations (height,
// width); padding above and on the left; how far apart pixels are (1, or the stride of a transposed convolution, height,
// width); elements from pixel to pixel and from group to group; zero point; limits of the results before the steps;
// whether channels are the rows of the array; whether columns are the outer loop; whether weights are packed.
//
// Weights lie as (groups, channels, window height, window width, channels of a group of the input). Packed, they lie as
// they are used: group by group, tile by tile, and in it fold by fold, step by step, line by line. Constants lie as {int32
// bias, float scale} of each channel. The zero point of the input is in the bias: bias - zero * (sum of the channel's
// weights). The result is a view by (0, group, pixel, channel of the group), whose pixels or channels lie side by side.
// So a map may have its channels innermost or outermost. A transposed convolution turns its kernel by half a turn, has
// stride 1, pads by (kernel - 1) * dilation - its own padding, and has its stride as `apart`. The steps are the
// operators that the plan fused behind the requantization (`layers` of a call in the specification): a residual
// addition reads its other operand at the place of the result, a function of one value is a table.
extern "C" void $design($port_arguments, int64_t steps) {
$interfaces
    static program_t program;
    static int16_t table[TABLE_ENTRIES];
    load_program($port_names, steps, program, table);
    run($port_names, call_t(program), program, table);
}
