
// Integers: values of 32 bits, multipliers of 18 (as one DSP multiplies), sums of 64.
namespace {

typedef int64_t total_t;

constexpr int LOG_BITS = 16;  // fraction bits of a logarithm to base 2

// The nearest whole number of value / 2^shift, ties towards the larger.
inline int64_t rounded(int64_t value, int64_t shift) {
    return shift > 0 ? (value + (int64_t(1) << (shift - 1))) >> shift : value * (int64_t(1) << -shift);
}

// The whole part of a square root, bit by bit.
inline int64_t root_of(int64_t value) {
    int64_t root = 0;
bit:
    for (int bit = 31; bit >= 0; --bit) {
#pragma HLS PIPELINE II=1
        const int64_t candidate = root | int64_t(1) << bit;
        if (candidate <= 0xb504f333 && candidate * candidate <= value) root = candidate;
    }
    return root;
}

// value / divisor with so many fraction bits, through a reciprocal of 16 bits: one division of 2^31 by 16 bits.
inline int64_t ratio(int64_t value, int64_t divisor, int fraction_bits) {
    int shift = 0;
    int64_t head = divisor;
normalize:
    for (int bit = 0; bit < 64; ++bit) {
        if (head >= 65536) head >>= 1, ++shift;
        if (head < 32768) head <<= 1, --shift;
    }
    return rounded(value * ((int64_t(1) << 31) / head), 31 + shift - fraction_bits);
}

// 65536 * 2^(-distance / 2^LOG_BITS): a table of 2^-(i / 256), linear between its entries.
constexpr int32_t POWERS[257] = {$powers};

inline int64_t exponential(int64_t distance) {
    const int64_t whole = distance >> LOG_BITS;
    if (whole > 31) return 0;
    if (whole < -14) return INT32_MAX;
    const int64_t index = distance >> 8 & 255, rest = distance & 255;
    return rounded(POWERS[index] * (256 - rest) + POWERS[index + 1] * rest, 8 + whole);
}

// A probability as an operand of the second product of attention.
inline int64_t as_operand(int64_t power) {
    const int64_t most = (int64_t(1) << (ELEMENT_BITS - 1)) - 1, nearest = rounded(power, 17 - ELEMENT_BITS);
    return nearest < most ? nearest : most;
}

inline int64_t rescaled(int64_t sum, int64_t power) { return rounded(sum * power, 16); }

// Of one row: (value - mean) / deviation with 16 fraction bits. `smallest` is n^2 * epsilon, in the row's own scale.
struct moments_t {
    int64_t count, sum, squares, reciprocal, shift;

    void add(int64_t value) { ++count, sum += value, squares += value * value; }

    void finish(bool is_centred, int64_t smallest) {
        if (!is_centred) sum = 0;
        int64_t variance = count * squares - sum * sum + smallest;  // n^2 times the variance: an exact integer
        shift = 30;
        if (variance == 0) variance = 1;
    normalize:
        for (int bit = 0; bit < 30; ++bit) {
            if (variance < (int64_t(1) << 60)) variance <<= 2; else break;
            --shift;
        }
        reciprocal = (int64_t(1) << 31) / (root_of(variance) >> 15);
    }

    int64_t normalized(int64_t value) const { return rounded((count * value - sum) * reciprocal, shift); }
};

inline value_t whole(int64_t value) { return value_t(value < INT32_MIN ? INT32_MIN : value > INT32_MAX ? INT32_MAX : value); }

// A total with fewer bits.
inline int64_t scaled_down(int64_t total, int64_t shift) { return rounded(total, shift); }

// A mean over a window, with 8 fraction bits.
inline int64_t window_mean(int64_t sum, int64_t count) {
    const int64_t doubled = 512 * sum + count, rest = doubled % (2 * count);
    return doubled / (2 * count) - (rest < 0);
}

inline value_t applied(const step_t &step, value_t v, value_t x, const int16_t table[TABLE_ENTRIES]) {
#pragma HLS INLINE
    int64_t total = 0;
    switch (step.operation) {
        case SUM: total = v * step.m + x * step.n; break;
        case PRODUCT: total = int64_t(v) * x; break;
        case QUOTIENT: total = x ? v * step.m / x : v < 0 ? INT32_MIN : INT32_MAX; break;
        case INVERSE: total = v ? x * step.n / v : x < 0 ? INT32_MIN : INT32_MAX; break;
        case LARGEST: total = v * step.m > x * step.n ? v * step.m : x * step.n; break;
        case SMALLEST: total = v * step.m < x * step.n ? v * step.m : x * step.n; break;
        case SLOPE: total = v > 0 ? v * step.m : v * step.n; break;
        case SLOPE_OF_OPERAND: total = v > 0 ? v * step.m : int64_t(v) * x; break;
        case TABLE: {  // m: bits of v below an interval; the intervals begin at -128 << m
            const int64_t part = int64_t(1) << step.m, from = -128 * part, to = 128 * part;
            const int64_t inside = v < from ? 0 : v > to - 1 ? to - 1 - from : v - from;
            const int64_t i = inside >> step.m, rest = inside & (part - 1);
            total = table[i] * (part - rest) + table[i + 1] * rest;
            break;
        }
        case ROOT: total = root_of(v > 0 ? v * step.m : 0); break;
        default: total = whole(exponential(-(v * step.m)));
    }
    total = rounded(total, step.shift);
    return value_t(total < step.least ? step.least : total > step.most ? step.most : total);
}

// What happens to a complete sum: QLinearConv's arithmetic. The scale is a float, ties go to the even number.
inline value_t epilogue(sum_t sum, sum_t bias, float scale, int32_t zero, float least, float most) {
#pragma HLS INLINE
    const float scaled = std::nearbyint(float(sum + bias) * scale) + float(zero);
    return value_t(scaled < least ? least : scaled > most ? most : scaled);
}

}  // namespace
