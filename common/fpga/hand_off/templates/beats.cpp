
// Beats: a word of every port at once.
namespace {

constexpr int BEAT_BYTES = PORTS * WORD_BYTES;
constexpr int BEAT_ELEMENTS = BEAT_BYTES * 8 / ELEMENT_BITS;
constexpr int WORD_ELEMENTS = WORD_BYTES * 8 / ELEMENT_BITS;

constexpr int smaller(int one, int other) { return one < other ? one : other; }

constexpr int larger(int one, int other) { return one < other ? other : one; }

inline int64_t tiles(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

inline int least_of(int64_t one, int64_t other) { return int(one < other ? one : other); }

inline bool have_no_common_divisor(int one, int other) {
    while (other) {
        const int rest = one % other;
        one = other;
        other = rest;
    }
    return one == 1;
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

// The words from `first` to `last` of a tensor, one of each port at most, each in the place of its port.
inline beat_t read_words($port_arguments, int64_t base, int64_t first, int64_t last) {
#pragma HLS INLINE
    beat_t beat = {};
    int64_t at;
$word_reads
    return beat;
}

// Beats leave as they are complete. Of a word that no result fills, the rest is read first.
struct writer_of_beats_t {
    int64_t base, held;
    beat_t beat, mask;

    explicit writer_of_beats_t(int64_t at) : base(at), held(-1), beat(), mask() {}

    void byte(int64_t index, uint8_t value, uint8_t bits) {
        uint8_t &at = beat.word[index / WORD_BYTES].byte[index % WORD_BYTES];
        at = uint8_t((at & ~bits) | (value & bits));
        mask.word[index / WORD_BYTES].byte[index % WORD_BYTES] |= bits;
    }

    void element(int64_t index, element_t value) {
$pack_beat
    }

    void flush($port_arguments) {
        for (int port = 0; port < PORTS; ++port) {
#pragma HLS UNROLL
            bool is_used = false, is_whole = true;
            for (int at = 0; at < WORD_BYTES; ++at) {
                is_used = is_used || mask.word[port].byte[at] != 0;
                is_whole = is_whole && mask.word[port].byte[at] == 0xff;
            }
            if (held < 0 || !is_used) continue;
            if (!is_whole) {
                const word_t before = read_word($port_names, base + held, port);
                for (int at = 0; at < WORD_BYTES; ++at) {
                    byte(port * WORD_BYTES + at, before.byte[at], uint8_t(~mask.word[port].byte[at]));
                }
            }
            write_word($port_names, base + held, port, beat.word[port]);
        }
        mask = beat_t();
    }
};

}  // namespace
