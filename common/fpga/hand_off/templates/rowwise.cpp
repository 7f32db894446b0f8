
namespace {

constexpr int UNITS = $units;  // each with a port of its own
constexpr int LANES = $lanes;  // elements of a unit per cycle
constexpr int ROW_LIMIT = $row_limit;  // elements of a row that a unit keeps

enum kind_t { ELEMENTS, NORMALIZATION, SOFTMAX, FOLD, POOL };
enum fold_t { TOTAL, TOTAL_OF_SIZES, TOTAL_OF_SQUARES, MOST, LEAST };

// What the units share while a call runs.
struct call_t {
    program_t program;
    int16_t table[TABLE_ENTRIES];

    int64_t extent(int axis) const { return int64_t(program.extent[axis]); }
    int64_t setting(int index) const { return int64_t(program.setting[index]); }
    int64_t width() const { return extent(2) * extent(3); }
    int before() const { return int(program.steps_before); }
    int after() const { return int(program.steps_before + program.steps_after); }
};

// The coordinates of element j of a row: axes 0 and 1 number the rows, axes 2 and 3 the elements of a row.
struct place_t {
    int64_t at[4];

    place_t(const call_t &call, int64_t row, int64_t j)
        : at{row / call.extent(1), row % call.extent(1), j / call.extent(3), j % call.extent(3)} {}
};

struct unit_t {
    operands_t operands;
    writer_t output;

    explicit unit_t(const call_t &call) : operands(call.program), output(int64_t(call.program.result.base)) {}

    // Operand 0 as it is in memory.
    element_t raw($port_arguments, const call_t &call, const int64_t at[4]) {
#pragma HLS INLINE
        return operands.of[0].element($port_names, call.program.operand[0].place(at));
    }

    // An element as it enters: without its zero point, and behind the first steps.
    value_t entered($port_arguments, const call_t &call, const int64_t at[4], element_t raw) {
#pragma HLS INLINE
        const value_t value = value_t(value_t(raw) - value_t(call.program.operand[0].zero));
        return stepped($port_names, call.program, call.table, operands, 0, call.before(), at, value);
    }

    // A result as it leaves, behind the last steps.
    void leave($port_arguments, const call_t &call, const int64_t at[4], value_t value) {
#pragma HLS INLINE
        const value_t result =
            stepped($port_names, call.program, call.table, operands, call.before(), call.after(), at, value);
        output.element($port_names, call.program.result.place(at), element_t(result));
    }
};

// The element-wise operators, and those that move contiguous elements, have no reduction.
void elements_of($port_arguments, const call_t &call, unit_t &unit, int64_t row) {
step:
    for (int64_t first = 0; first < call.width(); first += LANES) {
#pragma HLS PIPELINE II=1
    lane:
        for (int lane = 0; lane < LANES; ++lane) {
#pragma HLS UNROLL
            if (first + lane >= call.width()) continue;
            const place_t place(call, row, first + lane);
            unit.leave($port_names, call, place.at,
                       unit.entered($port_names, call, place.at, unit.raw($port_names, call, place.at)));
        }
    }
}

// One row that is reduced in one pass and, unless it is folded, written in a second one.
struct reduction_t {
    moments_t moments;
    total_t total, largest;
    bool is_first;

    reduction_t() : moments(), total(0), largest(0), is_first(true) {}

    void take(const call_t &call, const value_t values[LANES], int count) {
        if (call.program.kind == SOFTMAX) {
            take_exponentials(values, count);
            return;
        }
    lane:
        for (int lane = 0; lane < count; ++lane) {
            const total_t value = values[lane];
            if (call.program.kind == NORMALIZATION) {
                moments.add(value);
                continue;
            }
            switch (call.setting(0)) {
                case TOTAL: total += value; break;
                case TOTAL_OF_SIZES: total += value < 0 ? -value : value; break;
                case TOTAL_OF_SQUARES: total += value * value; break;
                case MOST: total = is_first || value > total ? value : total; break;
                default: total = is_first || value < total ? value : total;
            }
            is_first = false;
        }
    }

    // The sum of the exponentials so far, relative to the largest value so far (Milakov and Gimelshein 2018). The values
    // are logarithms to base 2.
    void take_exponentials(const value_t values[LANES], int count) {
        total_t most = is_first ? total_t(values[0]) : largest;
        for (int lane = 0; lane < count; ++lane) most = total_t(values[lane]) > most ? total_t(values[lane]) : most;
        if (!is_first && most != largest) total = rescaled(total, exponential(most - largest));
        for (int lane = 0; lane < count; ++lane) total += exponential(most - total_t(values[lane]));
        largest = most;
        is_first = false;
    }

    void finish(const call_t &call) {
        if (call.program.kind == NORMALIZATION) {
            moments.finish(call.setting(0) != 0, total_t(call.program.setting[1]));
        }
    }

    value_t result(const call_t &call, value_t value) const {
        if (call.program.kind == SOFTMAX) return whole(ratio(exponential(largest - total_t(value)), total, 16));
        return whole(moments.normalized(value));
    }
};

void row_of($port_arguments, const call_t &call, unit_t &unit, element_t kept[ROW_LIMIT], int64_t row) {
    const bool is_kept = call.width() <= ROW_LIMIT;  // else the row is read again
    reduction_t reduction;
reduce:
    for (int64_t first = 0; first < call.width(); first += LANES) {
#pragma HLS PIPELINE II=$ii_cycles
        value_t values[LANES];
        int count = 0;
    reduced:
        for (int lane = 0; lane < LANES; ++lane) {
#pragma HLS UNROLL
            if (first + lane >= call.width()) continue;
            const place_t place(call, row, first + lane);
            const element_t raw = unit.raw($port_names, call, place.at);
            if (is_kept) kept[first + lane] = raw;
            values[count++] = unit.entered($port_names, call, place.at, raw);
        }
        reduction.take(call, values, count);
    }
    reduction.finish(call);
    if (call.program.kind == FOLD) {
        const place_t place(call, row, 0);
        unit.leave($port_names, call, place.at, whole(scaled_down(reduction.total, call.setting(1))));
        return;
    }
write:
    for (int64_t first = 0; first < call.width(); first += LANES) {
#pragma HLS PIPELINE II=$ii_cycles
    written:
        for (int lane = 0; lane < LANES; ++lane) {
#pragma HLS UNROLL
            if (first + lane >= call.width()) continue;
            const place_t place(call, row, first + lane);
            const element_t raw = is_kept ? kept[first + lane] : unit.raw($port_names, call, place.at);
            unit.leave($port_names, call, place.at,
                       reduction.result(call, unit.entered($port_names, call, place.at, raw)));
        }
    }
}

// All channels of one position, LANES at once; a lane takes one value of its window per cycle. Settings: height and
// width of the map, of the window, strides, dilations, padding above and to the left, whether a mean is taken (else the
// largest), whether it counts the padding.
void window_of($port_arguments, const call_t &call, unit_t &unit, int64_t position) {
    const int64_t y = position / call.extent(2) % call.extent(1), x = position % call.extent(2);
    const int64_t image = position / call.extent(2) / call.extent(1), taps = call.setting(2) * call.setting(3);
    const bool is_mean = call.setting(10) != 0;
channel:
    for (int64_t first = 0; first < call.extent(3); first += LANES) {
        total_t totals[LANES] = {};
        total_t count = 0;
    tap:
        for (int64_t tap = 0; tap < taps; ++tap) {
#pragma HLS PIPELINE II=1
            const int64_t in_y = y * call.setting(4) - call.setting(8) + tap / call.setting(3) * call.setting(6);
            const int64_t in_x = x * call.setting(5) - call.setting(9) + tap % call.setting(3) * call.setting(7);
            if (in_y < 0 || in_x < 0 || in_y >= call.setting(0) || in_x >= call.setting(1)) continue;
        lane:
            for (int lane = 0; lane < LANES; ++lane) {
#pragma HLS UNROLL
                if (first + lane >= call.extent(3)) continue;
                const int64_t at[4] = {image, in_y, in_x, first + lane};
                const total_t value = unit.entered($port_names, call, at, unit.raw($port_names, call, at));
                const bool is_more = count == 0 || value > totals[lane];
                totals[lane] = is_mean ? totals[lane] + value : is_more ? value : totals[lane];
            }
            count += 1;
        }
        if (call.setting(11) != 0) count = total_t(taps);
    result:
        for (int lane = 0; lane < LANES; ++lane) {
            if (first + lane >= call.extent(3)) continue;
            const int64_t at[4] = {image, y, x, first + lane};
            unit.leave($port_names, call, at, whole(is_mean ? window_mean(totals[lane], count) : totals[lane]));
        }
    }
}

}  // namespace

// One call; `program` is in words of a port. Operand 0 is what is normalized, folded, pooled or moved. Rows (positions of
// a pool) are distributed over the units.
//
// kind 0, elements: all steps, one after the other; moving elements is a matter of the views.
// kind 1, a normalization: setting 0 is 1 where the mean is subtracted, setting 1 is n^2 * epsilon in the row's own scale.
//         The last steps get (value - mean) / deviation, with 16 fraction bits in integer formats.
// kind 2, a softmax: the first steps give logarithms to base 2, with 16 fraction bits in integer formats; the last
//         steps get probabilities, likewise.
// kind 3, a fold: setting 0 is its kind, setting 1 a shift of the total; one result per row, at element 0.
// kind 4, a pool: extents are images, height, width and channels of the result. Means have 8 fraction bits in integer
//         formats.
extern "C" void $design($port_arguments, int64_t program) {
$interfaces
    static element_t kept[UNITS][ROW_LIMIT];
#pragma HLS ARRAY_PARTITION variable=kept dim=1 complete
#pragma HLS ARRAY_PARTITION variable=kept dim=2 cyclic factor=$lanes
#pragma HLS BIND_STORAGE variable=kept type=ram_2p impl=bram
    static call_t call;
    load_program($port_names, program, call.program, call.table);
    const bool is_pool = call.program.kind == POOL;
    const int64_t rows = call.extent(0) * call.extent(1) * (is_pool ? call.extent(2) : 1);
row:
    for (int64_t first = 0; first < rows; first += UNITS) {
    unit:
        for (int u = 0; u < UNITS; ++u) {
#pragma HLS UNROLL
            if (first + u >= rows) continue;
            unit_t unit(call);
            if (is_pool) {
                window_of($port_names, call, unit, first + u);
            } else if (call.program.kind == ELEMENTS) {
                elements_of($port_names, call, unit, first + u);
            } else {
                row_of($port_names, call, unit, kept[u], first + u);
            }
            unit.output.flush($port_names);
        }
    }
}
