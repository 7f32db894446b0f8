// $design: generated from an offload plan.
// It compiles with any C++ compiler: pragmas of HLS are ignored there, and no header of the vendor is needed.
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

constexpr int PORTS = $port_count;
constexpr int WORD_BYTES = $word_bytes;
constexpr int ELEMENT_BITS = $element_bits;

typedef $element_type element_t;  // one operand, unpacked
typedef $sum_type sum_t;
typedef $value_type value_t;  // what a lane computes with
typedef $number_type number_t;  // of a program

struct word_t {
    uint8_t byte[WORD_BYTES];
};

// A tensor is spread over the ports word by word: word w is on port w % PORTS, at `base` + w / PORTS.
inline word_t read_word($port_arguments, int64_t base, int64_t word) {
#pragma HLS INLINE
    const int64_t at = base + word / PORTS;
    switch (word % PORTS) {
$read_cases
    }
}

inline void write_word($port_arguments, int64_t base, int64_t word, const word_t &value) {
#pragma HLS INLINE
    const int64_t at = base + word / PORTS;
    switch (word % PORTS) {
$write_cases
    }
}

// One tensor that is read mostly in the order of its bytes: the last word is kept.
struct reader_t {
    int64_t base, held;
    word_t word;

    explicit reader_t(int64_t at = 0) : base(at), held(-1) {}

    uint8_t byte($port_arguments, int64_t index) {
        if (index / WORD_BYTES != held) {
            held = index / WORD_BYTES;
            word = read_word($port_names, base, held);
        }
        return word.byte[index % WORD_BYTES];
    }

    template <typename value_t>
    value_t value($port_arguments, int64_t index) {
        uint8_t bytes[sizeof(value_t)];
        for (unsigned i = 0; i < sizeof(value_t); ++i) bytes[i] = byte($port_names, index * sizeof(value_t) + i);
        value_t result;
        std::memcpy(&result, bytes, sizeof(value_t));
        return result;
    }

    element_t element($port_arguments, int64_t index) {
$unpack
    }
};

// One tensor that is written: a word is completed before it leaves. What stood in it before is kept.
struct writer_t {
    int64_t base, held;
    word_t word;

    explicit writer_t(int64_t at = 0) : base(at), held(-1) {}

    void byte($port_arguments, int64_t index, uint8_t value, uint8_t mask) {
        if (index / WORD_BYTES != held) {
            flush($port_names);
            held = index / WORD_BYTES;
            word = read_word($port_names, base, held);
        }
        uint8_t &at = word.byte[index % WORD_BYTES];
        at = uint8_t((at & ~mask) | (value & mask));
    }

    void element($port_arguments, int64_t index, element_t value) {
$pack
    }

    void flush($port_arguments) {
        if (held >= 0) write_word($port_names, base, held, word);
        held = -1;
    }
};

}  // namespace
