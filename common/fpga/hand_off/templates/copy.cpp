
namespace {

constexpr int VECTORS = $vectors;                               // ports of the streaming kernel's vectors
constexpr int UNIT_BITS = ELEMENT_BITS < 8 ? ELEMENT_BITS : 8;  // what moves as a whole
constexpr int UNITS = WORD_BYTES * 8 / UNIT_BITS;               // of a word

uint8_t unit_of(const word_t &word, int unit) {
#pragma HLS INLINE
    return UNIT_BITS == 8 ? word.byte[unit] : uint8_t(word.byte[unit / 2] >> (unit % 2 * 4) & 0xf);
}

void set_unit(word_t &word, int unit, uint8_t value) {
#pragma HLS INLINE
    uint8_t &byte = word.byte[UNIT_BITS == 8 ? unit : unit / 2];
    const bool is_upper = UNIT_BITS == 4 && unit % 2 == 1;
    byte = UNIT_BITS == 8 ? value : uint8_t(is_upper ? (byte & 0x0f) | value << 4 : (byte & 0xf0) | value);
}

word_t vector_word($vector_arguments, int vector, int64_t at) {
#pragma HLS INLINE
    switch (vector) {
$vector_reads
    }
}

void set_vector_word($vector_arguments, int vector, int64_t at, const word_t &value) {
#pragma HLS INLINE
    switch (vector) {
$vector_writes
    }
}

// Lines of `units`, one after the other without a gap, leave as lines that each begin with a word.
void to_vectors($port_arguments, $vector_arguments, int64_t from, int64_t to, int64_t lines, int64_t units) {
    const int64_t words = (units + UNITS - 1) / UNITS, last = (lines * units - 1) / UNITS;
    int64_t read = 0, held = 0;  // words that were read, and units that wait
    word_t waiting[2] = {};
    for (int64_t line = 0; line < lines; ++line) {
    spread:
        for (int64_t word = 0; word < words; ++word) {
#pragma HLS PIPELINE II=1
            const int64_t left = units - word * UNITS;
            const int taken = int(left < UNITS ? left : UNITS);
            if (held < taken && read <= last) {
                const word_t next = read_word($port_names, from, read++);
                for (int u = 0; u < UNITS; ++u) {
#pragma HLS UNROLL
                    const int at = int(held) + u;
                    set_unit(waiting[at / UNITS], at % UNITS, unit_of(next, u));
                }
                held += UNITS;
            }
            word_t out = {};
            for (int u = 0; u < UNITS; ++u) {
#pragma HLS UNROLL
                if (u < taken) set_unit(out, u, unit_of(waiting[0], u));
            }
            word_t rest[2] = {};
            for (int u = 0; u < UNITS; ++u) {
#pragma HLS UNROLL
                const int at = taken + u;
                if (at < held) set_unit(rest[0], u, unit_of(waiting[at / UNITS], at % UNITS));
            }
            waiting[0] = rest[0];
            held -= taken;
            set_vector_word($vector_names, int(line % VECTORS), to + line / VECTORS * words + word, out);
        }
    }
}

// The way back: lines that each begin with a word become one sequence.
void to_ports($port_arguments, $vector_arguments, int64_t from, int64_t to, int64_t lines, int64_t units) {
    const int64_t words = (units + UNITS - 1) / UNITS;
    int64_t written = 0;
    int held = 0;
    word_t waiting[2] = {};
    for (int64_t line = 0; line < lines; ++line) {
    join:
        for (int64_t word = 0; word < words; ++word) {
#pragma HLS PIPELINE II=1
            const int64_t left = units - word * UNITS;
            const int taken = int(left < UNITS ? left : UNITS);
            const word_t next = vector_word($vector_names, int(line % VECTORS), from + line / VECTORS * words + word);
            for (int u = 0; u < UNITS; ++u) {
#pragma HLS UNROLL
                const int at = held + u;
                if (u < taken) set_unit(waiting[at / UNITS], at % UNITS, unit_of(next, u));
            }
            held += taken;
            if (held < UNITS) continue;
            write_word($port_names, to, written++, waiting[0]);
            waiting[0] = waiting[1];
            held -= UNITS;
        }
    }
    if (held == 0) return;
    word_t whole = read_word($port_names, to, written);  // what stands behind the tensor is kept
    for (int u = 0; u < held; ++u) set_unit(whole, u, unit_of(waiting[0], u));
    write_word($port_names, to, written, whole);
}

}  // namespace

// One call copies a tensor of `lines` vectors of `columns` elements between an array's ports, over which it is spread word by
// word, and a streaming kernel's, where vector v is at v0 + v % VECTORS and begins with a word. Bases are in words of a port.
extern "C" void $design($all_arguments, int64_t from, int64_t to, int64_t lines, int64_t columns, int32_t is_to_vectors) {
$interfaces
    const int64_t units = columns * ELEMENT_BITS / UNIT_BITS;
    if (is_to_vectors) {
        to_vectors($port_names, $vector_names, from, to, lines, units);
    } else {
        to_ports($port_names, $vector_names, from, to, lines, units);
    }
}
