
// Floating point: values of 32 bits.
namespace {

typedef float total_t;

inline float ratio(float value, float divisor, int) { return value / divisor; }
inline float exponential(float distance) { return std::exp2(-distance); }
inline float as_operand(float power) { return power; }
inline float rescaled(float sum, float power) { return sum * power; }
inline float window_mean(float sum, float count) { return sum / count; }
inline float scaled_down(float total, float) { return total; }
inline value_t whole(float value) { return value; }

// Of one row: (value - mean) / deviation. `smallest` is n^2 * epsilon.
struct moments_t {
    float count, sum, squares, reciprocal;

    void add(float value) { count += 1, sum += value, squares += value * value; }

    void finish(bool is_centred, float smallest) {
        if (!is_centred) sum = 0;
        reciprocal = 1 / std::sqrt(count * squares - sum * sum + smallest);
    }

    float normalized(float value) const { return (count * value - sum) * reciprocal; }
};

inline value_t applied(const step_t &step, value_t v, value_t x, const int16_t[TABLE_ENTRIES]) {
#pragma HLS INLINE
    const float m = float(step.m), n = float(step.n);
    float total = 0;
    switch (int(step.operation)) {
        case SUM: total = v * m + x * n; break;
        case PRODUCT: total = v * x; break;
        case QUOTIENT: total = v * m / x; break;
        case INVERSE: total = x * n / v; break;
        case LARGEST: total = v * m > x * n ? v * m : x * n; break;
        case SMALLEST: total = v * m < x * n ? v * m : x * n; break;
        case SLOPE: total = v > 0 ? v * m : v * n; break;
        case SLOPE_OF_OPERAND: total = v > 0 ? v * m : v * x; break;
        case ROOT: total = std::sqrt(v * m); break;
        case EXPONENTIAL: total = exponential(-(v * m)); break;
        default: total = v;  // a table is for integers
    }
    const float least = float(step.least), most = float(step.most);
    return total < least ? least : total > most ? most : total;
}

// What happens to a complete sum. Parameters of a channel: its bias and its scale.
inline value_t epilogue(sum_t sum, sum_t bias, float scale, int32_t zero, float least, float most) {
#pragma HLS INLINE
    const float scaled = (sum + bias) * scale + float(zero);
    return scaled < least ? least : scaled > most ? most : scaled;
}

}  // namespace
