
namespace {

constexpr int MOST_OPERANDS = $most_operands;
constexpr int MOST_STEPS = $most_steps;
constexpr int TABLE_ENTRIES = 257;  // 256 intervals

// A tensor as a call sees it: the place of an element by its four coordinates. A stride of 0 repeats the tensor.
struct view_t {
    number_t base, offset, stride[4], zero, is_wide;  // wide: value_t instead of element_t, without a zero point

    int64_t place(const int64_t at[4]) const {
        int64_t sum = int64_t(offset);
        for (int axis = 0; axis < 4; ++axis) sum += at[axis] * int64_t(stride[axis]);
        return sum;
    }
};

// One step on a value v with an operand x: of a tensor (0, 1, ...), the value that entered (-1), or the number one (-2).
struct step_t {
    number_t operation, operand, m, n, shift, least, most, unused;
};

enum operation_t { SUM, PRODUCT, QUOTIENT, INVERSE, LARGEST, SMALLEST, SLOPE, SLOPE_OF_OPERAND, TABLE, ROOT, EXPONENTIAL };

// What a call does beside its sums: eight numbers (int64 in integer formats, double in others) a line, in this order.
struct program_t {
    number_t kind, extent[4], steps_before, steps_after, table;  // table: base of TABLE_ENTRIES int16, or -1
    number_t setting[32];  // of the kind of call
    view_t result, operand[MOST_OPERANDS];
    step_t step[MOST_STEPS];
};

inline void load_program($port_arguments, int64_t base, program_t &program, int16_t table[TABLE_ENTRIES]) {
    reader_t lines(base);
    number_t numbers[sizeof(program_t) / sizeof(number_t)];
number:
    for (unsigned i = 0; i < sizeof numbers / sizeof(number_t); ++i) {
#pragma HLS PIPELINE II=1
        numbers[i] = lines.value<number_t>($port_names, i);
    }
    std::memcpy(&program, numbers, sizeof program);
    reader_t entries(int64_t(program.table));
entry:
    for (int i = 0; i < TABLE_ENTRIES && program.table >= 0; ++i) {
#pragma HLS PIPELINE II=1
        table[i] = entries.value<int16_t>($port_names, i);
    }
}

// The operands of a call, each read mostly in order.
struct operands_t {
    reader_t of[MOST_OPERANDS];

    explicit operands_t(const program_t &program) {
        for (int k = 0; k < MOST_OPERANDS; ++k) of[k] = reader_t(int64_t(program.operand[k].base));
    }

    value_t value($port_arguments, const program_t &program, int k, const int64_t at[4]) {
#pragma HLS INLINE
        const view_t &view = program.operand[k];
        const int64_t place = view.place(at);
        if (view.is_wide != 0) return of[k].value<value_t>($port_names, place);
        return value_t(value_t(of[k].element($port_names, place)) - value_t(view.zero));
    }
};

inline value_t applied(const step_t &step, value_t v, value_t x, const int16_t table[TABLE_ENTRIES]);

// The steps from `first` to `last` on one value.
inline value_t stepped($port_arguments, const program_t &program, const int16_t table[TABLE_ENTRIES], operands_t &operands,
                int first, int last, const int64_t at[4], value_t value) {
#pragma HLS INLINE
    const value_t entered = value;
step:
    for (int s = 0; s < MOST_STEPS; ++s) {
#pragma HLS UNROLL
        if (s < first || s >= last) continue;
        const int k = int(program.step[s].operand);
        const value_t x = k >= 0 ? operands.value($port_names, program, k, at) : k == -1 ? entered : value_t(1);
        value = applied(program.step[s], value, x, table);
    }
    return value;
}

}  // namespace
