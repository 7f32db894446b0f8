
namespace {

constexpr int FLOAT_BYTES = 4;

// What a call converts: a matrix (rows, columns), which is turned, and the formats of both sides.
struct conversion_t {
    int64_t source, target, rows, columns;
    bool from_float, to_float;
    float scale;
    int32_t zero;

    explicit conversion_t(const program_t &program)
        : source(int64_t(program.setting[0])), target(int64_t(program.setting[1])), rows(int64_t(program.setting[2])),
          columns(int64_t(program.setting[3])), from_float(program.setting[4] != 0), to_float(program.setting[5] != 0),
          scale(), zero(int32_t(program.setting[7])) {
        const int32_t bits = int32_t(program.setting[6]);
        std::memcpy(&scale, &bits, sizeof scale);
    }
};

// A block of the matrix on the chip. What follows in the target is in banks of its own, and so is what follows in a row.
struct block_t {
    int64_t row, column;
    int rows, columns, spread;

    block_t(const conversion_t &call, int64_t first_row, int64_t first_column)
        : row(first_row), column(first_column), rows(least_of(BEAT_ELEMENTS, call.rows - first_row)),
          columns(least_of(BEAT_ELEMENTS, call.columns - first_column)), spread(rows) {
        while (!have_no_common_divisor(BEAT_ELEMENTS, spread)) ++spread;
    }

    int bank(int r, int c) const { return (c * spread + r) % BEAT_ELEMENTS; }
    int address(int r, int c) const { return (c * spread + r) / BEAT_ELEMENTS; }
};

constexpr int BLOCK_DEPTH = 2 * BEAT_ELEMENTS + 2;

inline element_t quantized(float value, const conversion_t &call) {
    const float nearest = std::nearbyint(value / call.scale) + float(call.zero);
    const float least = -float(1 << (ELEMENT_BITS - 1)), most = float((1 << (ELEMENT_BITS - 1)) - 1);
    return element_t(nearest < least ? least : nearest > most ? most : nearest);
}

void load($port_arguments, const conversion_t &call, const block_t &block,
          element_t held[BEAT_ELEMENTS][BLOCK_DEPTH]) {
    const int of_beat = call.from_float ? BEAT_BYTES / FLOAT_BYTES : BEAT_ELEMENTS;
    const int of_word = call.from_float ? WORD_BYTES / FLOAT_BYTES : WORD_ELEMENTS;
    int r = 0, c = 0;
load:
    while (r < block.rows) {
#pragma HLS PIPELINE II=1
        const int64_t place = (block.row + r) * call.columns + block.column + c;
        const int taken = least_of(block.columns - c, of_beat - place % of_word);
        const beat_t beat = read_words($port_names, call.source, place / of_word, (place + taken - 1) / of_word);
        for (int e = 0; e < BEAT_ELEMENTS; ++e) {
#pragma HLS UNROLL
            if (e >= taken) continue;
            const int64_t at = (place + e) % of_beat;
            const element_t value = call.from_float ? quantized(beat.value<float>(at), call) : beat.element(at);
            held[block.bank(r, c + e)][block.address(r, c + e)] = value;
        }
        c += taken;
        if (c == block.columns) c = 0, ++r;
    }
}

void store($port_arguments, const conversion_t &call, const block_t &block,
           const element_t held[BEAT_ELEMENTS][BLOCK_DEPTH]) {
    const int bytes = call.to_float ? FLOAT_BYTES * 8 / ELEMENT_BITS : 1;  // elements that a result takes
    const int most = BEAT_ELEMENTS / bytes;
    const bool is_joined = block.rows == call.rows && block.spread <= most;
    const int together = is_joined ? most / block.spread : 1;
    writer_of_beats_t writer(call.target);
    int r = 0, c = 0, done = 0;
store:
    while (c < block.columns) {
#pragma HLS PIPELINE II=1
        const int columns = least_of(together, block.columns - c), rows = is_joined ? block.rows : least_of(most, block.rows - r);
        const int64_t place = (block.column + c) * call.rows + block.row + r + done;
        const int taken = least_of(columns * rows - done, most - place % most);
        if (place / most != writer.held) writer.flush($port_names);
        writer.held = place / most;
        for (int e = 0; e < BEAT_ELEMENTS; ++e) {
#pragma HLS UNROLL
            if (e >= taken) continue;
            const int at_r = r + (done + e) % rows, at_c = c + (done + e) / rows;
            const element_t value = held[block.bank(at_r, at_c)][block.address(at_r, at_c)];
            if (call.to_float) {
                const float number = (float(value) - float(call.zero)) * call.scale;
                uint8_t each[FLOAT_BYTES];
                std::memcpy(each, &number, FLOAT_BYTES);
                for (int n = 0; n < FLOAT_BYTES; ++n) writer.byte((place + e) % most * FLOAT_BYTES + n, each[n], 0xff);
            } else {
                writer.element((place + e) % most, value);
            }
        }
        done += taken;
        if (done < columns * rows) continue;
        done = 0;
        r += rows;
        if (r == block.rows) r = 0, c += columns;
    }
    writer.flush($port_names);
}

// The next block loads while this one is stored.
void convert_block($port_arguments, const conversion_t &call, const block_t &block) {
#pragma HLS DATAFLOW
    static element_t held[BEAT_ELEMENTS][BLOCK_DEPTH];
#pragma HLS ARRAY_PARTITION variable=held dim=1 complete
    load($port_names, call, block, held);
    store($port_names, call, block, held);
}

}  // namespace

// One call turns a matrix: maps of the host are (channels, pixels), those of an array (pixels, channels). So it also copies
// between both orders of an array. Settings of the program, in this order: bases of the source and of the target, in words
// of a port; rows and columns of the source; whether the source, and whether the target is float32; the bits of the
// float32 scale, and the zero point: value = (element - zero) * scale, to the nearest with ties to even.
extern "C" void $design($port_arguments, int64_t steps) {
$interfaces
    static program_t program;
    static int16_t table[TABLE_ENTRIES];
    load_program($port_names, steps, program, table);
    const conversion_t call(program);
    for (int64_t row = 0; row < call.rows; row += BEAT_ELEMENTS) {
        for (int64_t column = 0; column < call.columns; column += BEAT_ELEMENTS) {
            convert_block($port_names, call, block_t(call, row, column));
        }
    }
}
